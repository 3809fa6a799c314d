#include "tools/simcuda/driver/memory_engine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/faults.h"
#include "tools/simcuda/driver/report.h"
#include "tools/simcuda/driver/scheduler.h"
#include "tools/simcuda/driver/transfer.h"
#include "tools/simcuda/driver/worker.h"

namespace simcuda::driver {
namespace {

constexpr std::uint64_t kSmallestPiece = 16 << 10, kLargestPiece = 512 << 10;  // bytes
constexpr auto kPoll = std::chrono::microseconds(100);  // between looks at a value nobody has written yet

void count_bytes(const CopyOp& copy, std::uint64_t bytes) {
    const bool from_device = copy.from.place == Place::Device, to_device = copy.to.place == Place::Device;
    Traffic& t = traffic();
    (from_device ? (to_device ? t.device_to_device : t.device_to_host)
                 : (to_device ? t.host_to_device : t.host_to_host)) += bytes;
}

// Reads or writes one value with faults caught.
struct ValueAccess {
    const ValueOp* op;
    std::uint64_t seen;

    static void run(void* self) {
        auto& access = *static_cast<ValueAccess*>(self);
        if (access.op->bytes == 4) {
            access.run_as<std::uint32_t>();
        } else {
            access.run_as<std::uint64_t>();
        }
    }

    template <class Word>
    void run_as() {
        auto* word = static_cast<Word*>(to_host(op->address));
        if (op->wait) {
            seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        } else {
            __atomic_store_n(word, static_cast<Word>(op->value), __ATOMIC_RELEASE);
        }
    }

    bool satisfied() const {
        const std::uint64_t mask = op->bytes == 4 ? 0xFFFF'FFFFu : ~std::uint64_t{0};
        const std::uint64_t wanted = op->value & mask;
        switch (op->condition & 0x3) {
            case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic: the difference as a signed number
                return op->bytes == 4 ? static_cast<std::int32_t>(seen - wanted) >= 0
                                      : static_cast<std::int64_t>(seen - wanted) >= 0;
            case CU_STREAM_WAIT_VALUE_EQ:
                return seen == wanted;
            case CU_STREAM_WAIT_VALUE_AND:
                return (seen & wanted) != 0;
            default:
                return (~(seen | wanted) & mask) != 0;
        }
    }
};

}  // namespace

struct MemoryEngine::Task {
    WorkPtr work;
    std::optional<Transfer> transfer;
};

MemoryEngine::MemoryEngine(unsigned number, double gbps, const shared::Link& link)
    : number_(number), gbps_(gbps), link_(link), random_(number) {}

void MemoryEngine::add(WorkPtr work) {
    std::lock_guard lock(mutex_);
    incoming_.push_back(std::move(work));
    if (!started_) {
        started_ = true;
        start_worker("simcuda-copy", [this] { loop(); });
    }
    arrived_.notify_one();
}

void MemoryEngine::loop() {
    std::vector<Task> active;
    busy_until_ = now_ns();
    bool blocked = false;  // nothing active could move on
    std::size_t blocked_in_a_row = 0;
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            if (active.empty() && incoming_.empty()) {
                arrived_.wait(lock, [&] { return !incoming_.empty(); });
                busy_until_ = std::max(busy_until_, now_ns());
            } else if (blocked) {
                arrived_.wait_for(lock, kPoll, [&] { return !incoming_.empty(); });
            }
            for (WorkPtr& work : incoming_) active.push_back({std::move(work), std::nullopt});
            incoming_.clear();
        }
        const std::size_t which = random_.below(active.size());
        const Progress progress = step(active[which]);
        blocked_in_a_row = progress == Progress::Blocked ? blocked_in_a_row + 1 : 0;
        blocked = blocked_in_a_row >= active.size();
        if (progress == Progress::Done || progress == Progress::Spawned) {
            const WorkPtr work = std::move(active[which].work);
            active.erase(active.begin() + static_cast<std::ptrdiff_t>(which));
            if (progress == Progress::Done) complete(work);
        }
    }
}

MemoryEngine::Progress MemoryEngine::step(Task& task) {
    if (auto* action = std::get_if<ActionOp>(&task.work->op)) {
        random_.delay();
        action->run();  // also in a failed context: it gives something back
        return Progress::Done;
    }
    if (task.work->context->error() != CUDA_SUCCESS) return Progress::Done;
    if (std::holds_alternative<ValueOp>(task.work->op)) return step_value(task);
    if (std::holds_alternative<SpawnOp>(task.work->op)) return step_spawn(task);
    return step_transfer(task);
}

MemoryEngine::Progress MemoryEngine::step_transfer(Task& task) {
    const auto* copy = std::get_if<CopyOp>(&task.work->op);
    if (!task.transfer) {
        random_.delay();
        if (copy != nullptr) {
            task.transfer.emplace(*copy);
            count_bytes(*copy, task.transfer->bytes());
        } else {
            task.transfer.emplace(std::get<MemsetOp>(task.work->op));
        }
    }
    if (task.transfer->done()) return Progress::Done;
    const std::uint64_t piece = kSmallestPiece + random_.below(kLargestPiece - kSmallestPiece);
    const std::uint64_t before = task.transfer->bytes_done();
    if (!task.transfer->step(piece)) {
        fail_at(*task.work->context, copy != nullptr ? "copy" : "memset", task.transfer->fault());
        return Progress::Done;
    }
    throttle(task.transfer->bytes_done() - before);
    return task.transfer->done() ? Progress::Done : Progress::More;
}

MemoryEngine::Progress MemoryEngine::step_value(Task& task) {
    ValueAccess access{&std::get<ValueOp>(task.work->op), 0};
    DeviceAddress fault = 0;
    if (!exec::guarded(&ValueAccess::run, &access, &fault)) {
        fail_at(*task.work->context, "stream memory operation", fault);
        return Progress::Done;
    }
    return !access.op->wait || access.satisfied() ? Progress::Done : Progress::Blocked;
}

// The steps may end, and the work be added again, before this returns.
MemoryEngine::Progress MemoryEngine::step_spawn(Task& task) {
    std::vector<SpawnStep> steps;
    if (!std::get<SpawnOp>(task.work->op).next(steps)) return Progress::Done;
    spawn(task.work, std::move(steps));
    return Progress::Spawned;
}

void MemoryEngine::throttle(std::uint64_t bytes) {
    if (gbps_ == 0) return;
    const std::uint64_t now = now_ns();
    // From the end of what came before, so that neither copying nor oversleeping counts beside it.
    const auto ns = static_cast<std::uint64_t>(static_cast<double>(bytes) / gbps_);
    busy_until_ = shared::page() != nullptr ? shared::take_link(link_, busy_until_, ns) : busy_until_ + ns;
    // Sleeping costs tens of microseconds by itself: only once the debt is worth it.
    if (busy_until_ > now + 200'000) sleep_ns(busy_until_ - now);
}

}  // namespace simcuda::driver

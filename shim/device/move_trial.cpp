#include "shim/device/move_trial.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "shim/device/driver_table.h"
#include "shim/device/work_beside.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::device {

const char* const kTrialPtx = R"(
.version 6.0
.target sm_50
.address_size 64
.visible .entry lms_trial(.param .u64 words, .param .u32 count, .param .u32 added)
{
    .reg .pred %outside;
    .reg .b32 %r<7>;
    .reg .b64 %a<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    ld.param.u32 %r4, [count];
    setp.ge.u32 %outside, %r1, %r4;
    @%outside bra DONE;
    ld.param.u64 %a1, [words];
    mul.wide.u32 %a2, %r1, 4;
    add.u64 %a2, %a1, %a2;
    ld.global.u32 %r5, [%a2];
    ld.param.u32 %r6, [added];
    add.u32 %r5, %r5, %r6;
    st.global.u32 [%a2], %r5;
    mul.wide.u32 %a3, %r4, 4;
    add.u64 %a3, %a1, %a3;
    atom.global.add.u32 %r5, [%a3], 1;
DONE:
    ret;
}
)";

namespace {

using util::Clock;
constexpr std::uint64_t kMostBytes = 32 << 10;
constexpr std::uint32_t kPerBlock = 256;

enum class Outcome { Right, Wrong, Failed, Late, NoMemory };

}  // namespace

// The last that was taken: the first that was not right, if any.
struct MoveTrial::Step {
    const char* name;
    Outcome outcome;
    bool remaps_wait = false;
};

class MoveTrial::Memory {
  public:
    Memory(Port& port, bool mapped, std::uint64_t bytes, const std::optional<TrialMemory>& given)
        : port_(port), mapped_(mapped), bytes_(bytes), given_(given) {}

    bool make() {
        const std::uint64_t unit = port_.granularity();
        return ok(port_.reserve(3 * unit, base_), reserved_) &&
               port_.pin(3 * bytes_, pinned_) == CUDA_SUCCESS && make_device_memory(unit) &&
               (!mapped_ || (ok(port_.create(unit, Place::Host, host_), has_host_) &&
                             ok(port_.map(host_alias(), unit, host_, Place::Host), host_mapped_))) &&
               show(Place::Device);
    }

    // Not while unfinished work may reach it. What is mapped still keeps its address.
    void give_back() {
        bool unmapped = true;
        if (shown_) unmapped &= unmap(address());
        if (host_mapped_) unmapped &= unmap(host_alias());
        if (device_mapped_) unmapped &= unmap(device_alias());
        if (has_host_) port_.release(host_);
        if (has_device_) port_.release(device_);
        if (reserved_ && unmapped) port_.unreserve(base_, 3 * port_.granularity());
    }

    // Has the address lead there.
    bool show(Place place) {
        if (shown_ && port_.unmap(address(), port_.granularity()) != CUDA_SUCCESS) return false;
        shown_ = false;
        return ok(port_.map(address(), port_.granularity(), place == Place::Host ? host_ : device_, place),
                  shown_);
    }

    Address address() const { return base_; }
    Address device_alias() const { return given_ ? given_->alias : base_ + port_.granularity(); }
    bool is_followed_by_device() const { return !given_; }
    Address host_alias() const { return base_ + 2 * port_.granularity(); }
    // Where an evicted chunk's contents are: mapped, or pinned.
    Address on_host() const { return mapped_ ? host_alias() : pinned_ + 2 * bytes_; }
    Address written() const { return pinned_; }
    Address result() const { return pinned_ + bytes_; }

    std::unique_ptr<Memory> before;  // left before this (MoveTrial::leave)

  private:
    static bool ok(CUresult status, bool& done) { return done = status == CUDA_SUCCESS; }

    bool make_device_memory(std::uint64_t unit) {
        if (given_) {
            device_ = given_->handle;
            return true;
        }
        return ok(port_.create(unit, Place::Device, device_), has_device_) &&
               ok(port_.map(device_alias(), unit, device_, Place::Device), device_mapped_);
    }

    bool unmap(Address address) {
        return port_.unmap(address, port_.granularity()) == CUDA_SUCCESS ||
               port_.discard(address, port_.granularity()) == CUDA_SUCCESS;
    }

    Port& port_;
    const bool mapped_;
    const std::uint64_t bytes_;
    const std::optional<TrialMemory> given_;
    bool reserved_ = false, has_device_ = false, has_host_ = false;
    bool device_mapped_ = false, host_mapped_ = false, shown_ = false;
    Address base_ = 0;
    Address pinned_ = 0;  // kept: giving it back would wait for the program's work
    CUmemGenericAllocationHandle device_{}, host_{};
};

class MoveTrial::Run {
  public:
    Run(Port& port, Memory& memory, bool mapped, std::uint64_t bytes, CUfunction kernel)
        : port_(port), bytes_(bytes), memory_(memory), mapped_(mapped), kernel_(kernel) {}

    Step steps() {
        Step step{"", Outcome::Right};
        const auto then = [&](const char* name, Outcome (Run::*each)()) {
            if (step.outcome == Outcome::Right) step = {name, (this->*each)()};
        };
        then("a copy out", &Run::copy_out);
        if (mapped_) {
            then("reading in place", &Run::read_in_place);
            then("a set in place", &Run::set_in_place);
            // Where a kernel may run, calls may wait as well.
            if (kernel_) then("a kernel in place", &Run::kernel_in_place);
            if (kernel_) then("a copy behind a kernel in place", &Run::copy_behind_kernel);
            if (kernel_ && memory_.is_followed_by_device())
                then("a copy of host and device memory", &Run::copy_across);
            then("a copy in place", &Run::copy_in_place);
        }
        then("a move back", &Run::move_back);
        then("the order of two streams", &Run::order);
        step.remaps_wait = step.outcome == Outcome::Right &&
                           waits_for_work_beside([&] { return memory_.show(Place::Device); });
        return step;
    }

  private:
    std::vector<std::uint32_t> words(std::uint32_t seed) const {
        std::vector<std::uint32_t> all(words_);
        for (std::uint32_t i = 0; i < words_; ++i) all[i] = (i + seed) * 2654435761u;
        return all;
    }

    Outcome write(Address to, std::uint32_t seed) {
        expected_ = words(seed);
        std::memcpy(reinterpret_cast<void*>(memory_.written()), expected_.data(), bytes_);
        return copy(to, memory_.written(), Direction::In);
    }

    Outcome copy(Address to, Address from, Direction direction) {
        return port_.copy(to, from, bytes_, direction) == CUDA_SUCCESS ? finish(direction) : Outcome::Failed;
    }

    Outcome compare() {
        std::memset(reinterpret_cast<void*>(memory_.result()), 0, bytes_);
        const Outcome copied = copy(memory_.result(), memory_.address(), Direction::Out);
        if (copied != Outcome::Right) return copied;
        const void* const result = reinterpret_cast<const void*>(memory_.result());
        return std::memcmp(result, expected_.data(), bytes_) == 0 ? Outcome::Right : Outcome::Wrong;
    }

    // Until what the stream was given is done. It may queue behind the program's work, which may wait for the
    // calling thread. What cannot be told to have ended has not.
    Outcome finish(Direction direction) {
        CUevent event = nullptr;
        if (!record(direction, event)) return Outcome::Late;
        CUresult status = query(event);
        for (; status == CUDA_ERROR_NOT_READY && Clock::now() < deadline_; status = query(event))
            util::pause(bounds::kTrialLook);
        if (status != CUDA_SUCCESS) return Outcome::Late;
        port_.recycle(event);
        return Outcome::Right;
    }

    // An error that does not stay says nothing.
    bool record(Direction direction, CUevent& event) {
        return port_.record(port_.stream(direction), event) == CUDA_SUCCESS ||
               port_.record(port_.stream(direction), event) == CUDA_SUCCESS;
    }
    CUresult query(CUevent event) {
        const CUresult status = port_.query(event);
        return status == CUDA_SUCCESS || status == CUDA_ERROR_NOT_READY ? status : port_.query(event);
    }

    template <typename... Then>
    static Outcome all(Outcome first, Then... then) {
        ((first = first == Outcome::Right ? then() : first), ...);
        return first;
    }

    Outcome copy_out() {
        return all(write(memory_.device_alias(), 1),
                   [&] { return copy(memory_.on_host(), memory_.device_alias(), Direction::Out); });
    }
    Outcome read_in_place() { return memory_.show(Place::Host) ? compare() : Outcome::Failed; }
    Outcome set_in_place() {
        constexpr std::uint32_t kValue = 0x5a17c0de;
        if (driver().cuMemsetD32Async(memory_.address(), kValue, words_, port_.stream(Direction::In)) !=
            CUDA_SUCCESS)
            return Outcome::Failed;
        expected_.assign(words_, kValue);
        return all(finish(Direction::In), [&] { return compare(); });
    }
    Outcome kernel_in_place() {
        // The last word counts.
        std::uint64_t address = memory_.address();
        std::uint32_t count = words_ - 1, added = 7;
        void* parameters[] = {&address, &count, &added};
        expected_ = words(2);
        for (std::uint32_t i = 0; i < count; ++i) expected_[i] += added;
        expected_[count] += count;
        const std::vector<std::uint32_t> after = expected_;
        return all(write(memory_.address(), 2), [&] {
            expected_ = after;
            if (driver().cuLaunchKernel(kernel_, words_ / kPerBlock, 1, 1, kPerBlock, 1, 1, 0,
                                        port_.stream(Direction::In), parameters, nullptr) != CUDA_SUCCESS)
                return Outcome::Failed;
            return all(finish(Direction::In), [&] { return compare(); });
        });
    }
    // As a program's synchronous copy, in the order of the legacy stream.
    Outcome copy_behind_kernel() {
        constexpr std::uint32_t kRounds = 16;
        std::uint64_t address = memory_.address();
        std::uint32_t count = words_ - 1, added = 3;
        void* parameters[] = {&address, &count, &added};
        if (const Outcome written = write(memory_.address(), 4); written != Outcome::Right) return written;
        for (std::uint32_t round = 0; round < kRounds; ++round) {
            if (driver().cuLaunchKernel(kernel_, words_ / kPerBlock, 1, 1, kPerBlock, 1, 1, 0, nullptr,
                                        parameters, nullptr) != CUDA_SUCCESS)
                return Outcome::Failed;
        }
        for (std::uint32_t i = 0; i < count; ++i) expected_[i] += kRounds * added;
        expected_[count] += kRounds * count;
        const Outcome copied = read_and_compare(memory_.address());
        // Where the copy did not wait for them the kernels run still, on what is about to be given back.
        return driver().cuStreamSynchronize(nullptr) == CUDA_SUCCESS ? copied : Outcome::Failed;
    }
    // One range that begins in the one and ends in the other.
    Outcome copy_across() {
        const Address range = memory_.address() + port_.granularity() - bytes_ / 2;
        expected_ = words(5);
        return driver().cuMemcpyHtoD_v2(range, expected_.data(), bytes_) == CUDA_SUCCESS
                   ? read_and_compare(range)
                   : Outcome::Failed;
    }
    Outcome read_and_compare(Address from) {
        std::vector<std::uint32_t> found(words_);
        if (driver().cuMemcpyDtoH_v2(found.data(), from, bytes_) != CUDA_SUCCESS) return Outcome::Failed;
        return found == expected_ ? Outcome::Right : Outcome::Wrong;
    }
    Outcome copy_in_place() {
        return all(write(memory_.address(), 3), [&] { return compare(); });
    }
    // What was on the device is overwritten first: it must come from the host.
    Outcome move_back() {
        if (driver().cuMemsetD32Async(memory_.device_alias(), 0, words_, port_.stream(Direction::In)) !=
            CUDA_SUCCESS)
            return Outcome::Failed;
        const Outcome copied = copy(memory_.device_alias(), memory_.on_host(), Direction::In);
        // The set is still to come, and what it writes is about to be given back.
        if (copied == Outcome::Failed) return all(finish(Direction::In), [] { return Outcome::Failed; });
        return all(copied, [&] { return memory_.show(Place::Device) ? compare() : Outcome::Failed; });
    }
    // Each set in one stream is waited for by the copy in the other.
    Outcome order() {
        constexpr std::uint32_t kRounds = 4;
        Outcome outcome = Outcome::Right;
        for (std::uint32_t round = 0; round < kRounds && outcome == Outcome::Right; ++round) {
            if (driver().cuMemsetD32Async(memory_.address(), round, words_, port_.stream(Direction::In)) !=
                CUDA_SUCCESS)
                return Outcome::Failed;
            CUevent event = nullptr;
            if (!record(Direction::In, event)) return Outcome::Late;
            const CUresult waits = port_.wait_in_stream(port_.stream(Direction::Out), event);
            expected_.assign(words_, round);
            outcome = waits == CUDA_SUCCESS ? compare() : Outcome::Failed;
            if (finish(Direction::In) != Outcome::Right) return Outcome::Late;
            port_.recycle(event);
        }
        return outcome;
    }

    Port& port_;
    const std::uint64_t bytes_;
    const std::uint32_t words_ = static_cast<std::uint32_t>(bytes_ / sizeof(std::uint32_t));
    Memory& memory_;
    const bool mapped_;
    const CUfunction kernel_;
    const Clock::time_point deadline_ = Clock::now() + bounds::kTrial;
    std::vector<std::uint32_t> expected_;
};

MoveTrial::MoveTrial(Port& port) : port_(port) {}
MoveTrial::~MoveTrial() = default;

void MoveTrial::give_back() {
    leave();
    settle();
}

void MoveTrial::leave() {
    if (!late_) return;
    const util::Lock lock(lock_);
    late_->before = std::move(left_);
    left_ = std::move(late_);
}

void MoveTrial::settle() {
    std::unique_ptr<Memory> left;
    {
        const util::Lock lock(lock_);
        left = std::move(left_);
    }
    for (; left; left = std::move(left->before)) left->give_back();
}

MoveTrial::Step MoveTrial::run_once(bool mapped, const std::optional<TrialMemory>& given, CUfunction kernel) {
    const std::uint64_t bytes = std::min(kMostBytes, port_.granularity());
    auto memory = std::make_unique<Memory>(port_, mapped, bytes, given);
    Step step{"making memory", Outcome::NoMemory};
    if (memory->make()) step = Run(port_, *memory, mapped, bytes, kernel).steps();
    if (step.outcome == Outcome::Late) {
        late_ = std::move(memory);
    } else {
        memory->give_back();
    }
    return step;
}

// A call that fails once may have been disturbed.
MoveTrial::Step MoveTrial::run_twice(bool mapped, const std::optional<TrialMemory>& memory,
                                     CUfunction kernel) {
    const Step step = run_once(mapped, memory, kernel);
    return step.outcome == Outcome::Failed ? run_once(mapped, memory, kernel) : step;
}

Trial MoveTrial::judge(const std::optional<TrialMemory>& memory, CUfunction kernel) {
    const bool mapped = port_.maps_host_memory();
    const Step first = run_twice(mapped, memory, kernel);
    if (first.outcome == Outcome::Right) return {.trust = Trust::Moves, .remaps_wait = first.remaps_wait};
    if (first.outcome == Outcome::Late || first.outcome == Outcome::NoMemory)
        return {Trust::Unknown, first.name};
    if (!mapped) return {first.outcome == Outcome::Wrong ? Trust::Nothing : Trust::Unknown, first.name};
    // Without host memory behind an address, what is left of it?
    const Step without = run_twice(false, memory, nullptr);
    if (without.outcome == Outcome::Right)
        return {.trust = Trust::NotInPlace, .failed = first.name, .remaps_wait = without.remaps_wait};
    return {without.outcome == Outcome::Wrong ? Trust::Nothing : Trust::Unknown, without.name};
}

Trial MoveTrial::run(const std::optional<TrialMemory>& memory, CUfunction kernel) {
    if (late_) {
        for (const Direction direction : {Direction::In, Direction::Out}) {
            if (port_.query_stream(port_.stream(direction)) != CUDA_SUCCESS) return {.over = false};
        }
        give_back();
    }
    Trial trial = judge(memory, kernel);
    trial.over = late_ == nullptr;
    return trial;
}

}  // namespace lms::device

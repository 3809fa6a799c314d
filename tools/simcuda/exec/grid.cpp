// A launch: hands out blocks to workers, keeps those that wait for one another in flight side by side, and
// ends the whole at the first failure.
#include "tools/simcuda/exec/grid.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <variant>

#include "tools/simcuda/exec/block.h"
#include "tools/simcuda/exec/block_pool.h"
#include "tools/simcuda/exec/device_functions.h"
#include "tools/simcuda/exec/dynamic_parallelism.h"
#include "tools/simcuda/exec/tally.h"
#include "tools/simcuda/ptx/count.h"

namespace simcuda::exec {
namespace {

// Blocks a worker keeps in flight when those it has wait for others.
constexpr std::size_t kMaxResident = 512;
// Rounds in which no resident block ends before another is started beside them: the one they wait for may be
// running on another worker.
constexpr std::uint32_t kPatience = 4;
// The same where all wait for other grids to end: fewer, for these take long, and a GPU has no room for more.
constexpr std::size_t kMaxWaiting = 64;
// How long to sleep then between two looks.
constexpr auto kNap = std::chrono::microseconds(100);
// In the count of those running a grid: all its blocks have ended, and one runs what they launched.
constexpr std::uint32_t kRunsChildren = 1u << 16;

std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

class LaunchedGrid;

// One run() on one thread. Lives outside what faults jump over.
struct Worker {
    LaunchedGrid* grid;
    // Those that blocks in flight are of, and what is left of their blocks that have ended.
    std::vector<std::unique_ptr<Cluster>> clusters;
    std::vector<std::unique_ptr<Block>> ended;
    std::uint32_t to_take;
    bool took_any = false;
    bool exhausted = false;
    Guard guard;
    std::vector<std::unique_ptr<Block>> resident;
    std::size_t current = 0;
    std::uint32_t idle_rounds = 0;
    bool all_wait = true;  // of those looked at in this round, for other grids
};

class LaunchedGrid final : public Grid {
  public:
    explicit LaunchedGrid(Launch launch) : launch_(std::move(launch)) {
        native_ = static_cast<const ptx::NativeKernel*>(launch_.kernel->code);
        cluster_size_ = launch_.cluster[0] * launch_.cluster[1] * launch_.cluster[2];
        total_ = std::uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2] / cluster_size_;
        if (const std::string& what = launch_.kernel->unsupported; !what.empty())
            message_ = what + " is not simulated";
        const std::uint64_t threads = std::uint64_t{launch_.block[0]} * launch_.block[1] * launch_.block[2];
        if (threads == 0 || threads > kMaxThreads)
            message_ = "a block of more than 1024 threads, or of none";
        else if (native_)
            entry_ = native_->entry(message_);
        if (!entry_) fail(Outcome::NotSupported, 0, nullptr);
        // What the kernel reads whole words of may end within one.
        launch_.parameters.resize(
            std::max<std::size_t>({launch_.parameters.size(), launch_.kernel->parameter_bytes, 1}));
        install_handlers();
    }

    bool run(std::uint32_t max_blocks) override;

    bool finished() const override {
        return running_.load() == 0 && (failed_.load() || next_.load() >= total_);
    }
    Outcome outcome() const override { return outcome_; }
    DeviceAddress fault_address() const override { return fault_address_; }
    std::string message() const override { return message_; }
    const sc_tally& tally() const { return total_tally_; }

  private:
    bool run_blocks(std::uint32_t max_blocks);
    void run_children();
    Agenda run_child(Launch launch, std::uint64_t seed);
    void run_transfer(const Transfer& transfer);
    void work(Worker& worker);
    bool take_block(Worker& worker, std::unique_ptr<Block> spare);
    void retire(Worker& worker);
    void look_elsewhere(Worker& worker);
    void count_let_go();
    void describe(std::uint64_t cluster, std::uint32_t rank, sc_block& block) const;
    void take_cluster(Worker& worker, std::uint64_t index);
    void start_block(Worker& worker, std::uint64_t index, std::uint32_t rank, Cluster* cluster);
    void keep_ended(Worker& worker, std::unique_ptr<Block> block);
    void fail(Outcome outcome, DeviceAddress address, const Worker* by);
    void enlist(Worker& worker);
    void dismiss(Worker& worker);

    Launch launch_;
    Children children_{launch_};
    const ptx::NativeKernel* native_ = nullptr;
    void* entry_ = nullptr;
    std::string message_;
    std::uint32_t cluster_size_ = 1;
    std::uint64_t total_ = 0;               // clusters, of one block mostly
    std::atomic<std::uint64_t> let_go_{0};  // blocks
    std::uint64_t id_ = next_id_++;
    std::atomic<std::uint64_t> next_{0};
    std::atomic<std::uint32_t> running_{0};  // workers inside run()
    std::atomic<bool> failed_{false};
    std::atomic<std::uint64_t> deadline_ns_{0};
    const HostRanges host_ranges_ = host_ranges();
    const sc_tally tally_ = empty_tally(host_ranges_);  // that blocks begin with
    mutable std::mutex mutex_;
    sc_tally total_tally_{};  // of blocks that have ended
    std::vector<Worker*> workers_;
    Outcome outcome_ = Outcome::Finished;
    DeviceAddress fault_address_ = 0;
    alignas(64) std::uint64_t
        workspace_[8] = {};  // where cooperative groups counts arrivals at grid barriers
    inline static std::atomic<std::uint64_t> next_id_{1};
};

// The first failure stands; whoever is still running is stopped, for it may wait for what will not come.
void LaunchedGrid::fail(Outcome outcome, DeviceAddress address, const Worker* by) {
    std::lock_guard lock(mutex_);
    if (failed_) return;
    outcome_ = outcome;
    fault_address_ = address;
    failed_ = true;
    for (Worker* worker : workers_)
        if (worker != by) request_stop(worker->guard);
}

void LaunchedGrid::enlist(Worker& worker) {
    std::lock_guard lock(mutex_);
    worker.guard.thread_id = static_cast<int>(syscall(SYS_gettid));
    if (failed_) worker.guard.stop_requested = true;
    workers_.push_back(&worker);
}

void LaunchedGrid::dismiss(Worker& worker) {
    std::lock_guard lock(mutex_);
    std::erase(workers_, &worker);
}

bool LaunchedGrid::run(std::uint32_t max_blocks) {
    ++running_;
    const bool took_any = run_blocks(max_blocks);
    // The last to leave when all blocks have ended goes on with what they have launched.
    for (std::uint32_t running = running_;;) {
        const bool last = running == 1 && next_ >= total_ && !failed_;
        if (!running_.compare_exchange_weak(running, last ? kRunsChildren : running - 1)) continue;
        if (last) {
            run_children();
            running_ -= kRunsChildren;
        }
        return took_any;
    }
}

bool LaunchedGrid::run_blocks(std::uint32_t max_blocks) {
    if (failed_ || next_ >= total_) return false;
    Worker worker{.grid = this, .to_take = max_blocks};
    {
        const KernelThread kernel_thread;
        enlist(worker);
        std::unique_ptr<StopTimer> timer;
        if (launch_.time_limit_ns) {
            std::uint64_t none = 0;
            const std::uint64_t now = now_ns();
            deadline_ns_.compare_exchange_strong(none, now + launch_.time_limit_ns);
            const std::uint64_t deadline = deadline_ns_;
            timer = std::make_unique<StopTimer>(deadline > now ? deadline - now : 1);
        }
        const Outcome outcome = catch_faults(
            worker.guard,
            [](void* argument) {
                auto* self = static_cast<Worker*>(argument);
                self->grid->work(*self);
            },
            &worker);
        if (outcome != Outcome::Finished) fail(outcome, worker.guard.fault_address, &worker);
        dismiss(worker);
    }
    flush_output();
    for (auto& block : worker.resident) release_block(std::move(block));
    for (auto& block : worker.ended) release_block(std::move(block));
    return worker.took_any;
}

// Each ends, with all it asks for in turn, before the next one starts.
void LaunchedGrid::run_children() {
    std::mt19937_64 random(launch_.seed);
    std::vector<Agenda> agendas;  // what is left of each, those of children behind their parents'
    const auto add = [&agendas](Agenda agenda) {
        if (!agenda.empty()) agendas.push_back(std::move(agenda));
    };
    for (add(children_.take()); !agendas.empty() && !failed_;) {
        ChildWork work = agendas.back().take(random());
        // Gone before its child's comes, so that a kernel that launches itself anew leaves nothing.
        if (agendas.back().empty()) agendas.pop_back();
        if (auto* launch = std::get_if<Launch>(&work))
            add(run_child(std::move(*launch), random()));
        else
            run_transfer(std::get<Transfer>(work));
    }
}

Agenda LaunchedGrid::run_child(Launch launch, std::uint64_t seed) {
    if (const std::uint64_t deadline = deadline_ns_) {
        const std::uint64_t now = now_ns();
        launch.time_limit_ns = deadline > now ? deadline - now : 1;
    }
    launch.seed = seed;
    LaunchedGrid child(std::move(launch));
    child.run_blocks(UINT32_MAX);
    add_tally(total_tally_, child.total_tally_);
    if (child.failed_) {
        message_ = child.message_;
        fail(child.outcome_, child.fault_address_, nullptr);
    }
    return child.children_.take();
}

void LaunchedGrid::run_transfer(const Transfer& transfer) {
    DeviceAddress fault = 0;
    if (!transfer.run(&fault)) return fail(Outcome::IllegalAddress, fault, nullptr);
    const std::uint64_t bytes = transfer.width * transfer.rows * transfer.slices;
    total_tally_.bytes += transfer.value ? bytes : 2 * bytes;
}

void LaunchedGrid::describe(std::uint64_t cluster, std::uint32_t rank, sc_block& block) const {
    const std::uint32_t(&size)[3] = launch_.cluster;
    const std::uint64_t across = launch_.grid[0] / size[0], down = launch_.grid[1] / size[1];
    const u32 of_cluster[] = {rank % size[0], rank / size[0] % size[1], rank / size[0] / size[1]};
    const std::uint64_t at[] = {cluster % across, cluster / across % down, cluster / across / down};
    block = {.runtime = &kRuntime,
             .parameters = reinterpret_cast<const u8*>(launch_.parameters.data()),
             .variables = launch_.image->variable_addresses.data(),
             .workspace = launch_.cooperative ? to_device(workspace_) : 0,
             .grid_id = id_,
             .nctaid = {launch_.grid[0], launch_.grid[1], launch_.grid[2]},
             .ntid = {launch_.block[0], launch_.block[1], launch_.block[2]},
             .static_shared_bytes = launch_.kernel->static_shared_bytes,
             .dynamic_shared_bytes = launch_.dynamic_shared_bytes,
             .smid = static_cast<u32>((cluster * cluster_size_ + rank) % launch_.multiprocessors),
             .nsmid = launch_.multiprocessors,
             .cluster_rank = rank,
             .cluster_size = cluster_size_,
             .explicit_cluster = launch_.explicit_cluster};
    for (int axis = 0; axis < 3; ++axis) {
        block.ctaid[axis] = static_cast<u32>(at[axis] * size[axis] + of_cluster[axis]);
        block.cluster_ctaid[axis] = of_cluster[axis];
        block.cluster_nctaid[axis] = size[axis];
    }
}

// Takes the next block nobody has, or the next cluster, and makes it resident: a block in `spare` if that is
// one.
bool LaunchedGrid::take_block(Worker& worker, std::unique_ptr<Block> spare) {
    const std::uint64_t index = failed_ || worker.exhausted ? total_ : next_++;
    if (index >= total_) {
        worker.exhausted = true;
        if (spare) release_block(std::move(spare));
        return false;
    }
    worker.took_any = true;
    if (worker.to_take) --worker.to_take;
    if (cluster_size_ > 1) {
        take_cluster(worker, index);
    } else {
        worker.resident.push_back(std::move(spare));
        start_block(worker, index, 0, nullptr);
    }
    return true;
}

// Which of its blocks begins is left open: here it goes round.
void LaunchedGrid::take_cluster(Worker& worker, std::uint64_t index) {
    const std::size_t first = worker.resident.size();
    worker.clusters.push_back(std::make_unique<Cluster>());
    for (std::uint32_t rank = 0; rank < cluster_size_; ++rank) {
        worker.resident.emplace_back();
        start_block(worker, index, rank, worker.clusters.back().get());
    }
    const auto begin = worker.resident.begin() + static_cast<std::ptrdiff_t>(first);
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(index % cluster_size_), worker.resident.end());
}

// In the last place of those resident; where that is empty, with a block from the pool.
void LaunchedGrid::start_block(Worker& worker, std::uint64_t index, std::uint32_t rank, Cluster* cluster) {
    std::unique_ptr<Block>& block = worker.resident.back();
    const bool fibers = native_->mode == ptx::NativeKernel::Mode::Fibers;
    const std::uint32_t stacks = fibers ? launch_.block[0] * launch_.block[1] * launch_.block[2] : 1;
    if (!block) block = acquire_block(stacks, native_->stack_bytes);
    sc_block abi;
    describe(index, rank, abi);
    if (block) block->tally() = tally_;
    if (!block || !block->start(abi, *native_, entry_, worker.guard, children_, cluster, launch_.behind))
        leave(Outcome::NotSupported);
}

// Runs resident blocks in turn until those asked for have ended.
void LaunchedGrid::work(Worker& worker) {
    while (!worker.resident.empty() || (worker.to_take && take_block(worker, nullptr))) {
        set_interruptible(worker.guard, true);
        const Block::State state = worker.resident[worker.current]->run();
        set_interruptible(worker.guard, false);
        switch (state) {
            case Block::State::Done:
                retire(worker);
                break;
            case Block::State::Stalled:
                worker.all_wait = false;
                look_elsewhere(worker);
                break;
            case Block::State::Waiting:
                look_elsewhere(worker);
                break;
            case Block::State::LetGo:
                count_let_go();
                break;
            case Block::State::Stuck:
                leave(Outcome::Timeout);
        }
    }
}

void LaunchedGrid::retire(Worker& worker) {
    flush_output();
    worker.idle_rounds = 0;
    worker.all_wait = false;
    std::unique_ptr<Block> block = std::move(worker.resident[worker.current]);
    if (!block->has_let_go()) count_let_go();
    if (ptx::counts_work()) {
        std::lock_guard lock(mutex_);
        add_tally(total_tally_, block->tally());
    }
    worker.resident.erase(worker.resident.begin() + static_cast<std::ptrdiff_t>(worker.current));
    if (worker.current >= worker.resident.size()) worker.current = 0;
    if (cluster_size_ > 1)
        keep_ended(worker, std::move(block));
    else if (worker.resident.empty() && worker.to_take)
        take_block(worker, std::move(block));
    else
        release_block(std::move(block));
}

// Until its cluster has ended, so that nobody else has its shared memory, which is gone.
void LaunchedGrid::keep_ended(Worker& worker, std::unique_ptr<Block> block) {
    block->close_shared();
    const Cluster* const cluster = &block->cluster();
    worker.ended.push_back(std::move(block));
    if (--worker.ended.back()->cluster().running != 0) return;
    std::erase_if(worker.ended, [cluster](std::unique_ptr<Block>& one) {
        if (&one->cluster() != cluster) return false;
        release_block(std::move(one));
        return true;
    });
    std::erase_if(worker.clusters, [cluster](const auto& one) { return one.get() == cluster; });
}

void LaunchedGrid::count_let_go() {
    if (launch_.on_let_go && ++let_go_ == total_ * cluster_size_) launch_.on_let_go();
}

// The current block waits for another: the next resident one goes on, after some rounds a further one.
void LaunchedGrid::look_elsewhere(Worker& worker) {
    if (failed_) leave(Outcome::Timeout);
    // What blocks of a cluster wait for comes from one another.
    if (std::exchange(worker.resident[worker.current]->cluster().met, false)) worker.idle_rounds = 0;
    if (++worker.current < worker.resident.size()) return;
    worker.current = 0;
    const bool all_wait = std::exchange(worker.all_wait, true);
    if (!all_wait && ++worker.idle_rounds < kPatience) {
        sched_yield();
        return;
    }
    worker.idle_rounds = 0;
    if (worker.resident.size() < (all_wait ? kMaxWaiting : kMaxResident) && take_block(worker, nullptr))
        worker.current = worker.resident.size() - cluster_size_;
    else if (all_wait)
        std::this_thread::sleep_for(kNap);
}

}  // namespace

std::unique_ptr<Grid> Grid::create(Launch launch) {
    return std::make_unique<LaunchedGrid>(std::move(launch));
}

sc_tally tally_of(const Grid& grid) {
    return static_cast<const LaunchedGrid&>(grid).tally();
}

}  // namespace simcuda::exec

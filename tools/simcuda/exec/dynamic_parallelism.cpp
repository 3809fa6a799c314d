#include "tools/simcuda/exec/dynamic_parallelism.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace simcuda::exec {
namespace {

// Streams that are no handles, and flags, by their numbers in CUDA's headers.
constexpr std::uint64_t kBlockStream = 0, kLegacyStream = 1, kThreadStream = 2, kTailLaunch = 3,
                        kFireAndForget = 4;
constexpr std::uint32_t kNonBlocking = 1;    // cudaStreamNonBlocking
constexpr std::uint32_t kDisableTiming = 2;  // cudaEventDisableTiming

// No two grids have the same, so that one of another grid is not taken for one's own.
std::uint64_t new_handle() {
    static std::atomic<std::uint64_t> next{0x1000};
    return next += 16;
}

bool is_shape(const std::uint32_t size[3], std::uint64_t most) {
    const std::uint64_t count = std::uint64_t{size[0]} * size[1] * size[2];
    return count > 0 && (most == 0 || count <= most);
}

void move_rows(void* argument) {
    const auto& transfer = *static_cast<const Transfer*>(argument);
    for (std::uint64_t slice = 0; slice < transfer.slices; ++slice) {
        for (std::uint64_t row = 0; row < transfer.rows; ++row) {
            const auto at = [&](const Transfer::Side& side) {
                return to_host(side.address + slice * side.slice + row * side.pitch);
            };
            if (transfer.value)
                std::memset(at(transfer.to), *transfer.value, transfer.width);
            else
                std::memmove(at(transfer.to), at(transfer.from), transfer.width);
        }
    }
}

}  // namespace

bool Transfer::run(DeviceAddress* fault) const {
    return guarded(move_rows, const_cast<Transfer*>(this), fault);
}

Agenda::Number Agenda::add(ChildWork work, const std::set<Number>& after) {
    const Number number = tasks_.size();
    for (const Number earlier : after) tasks_[earlier].followers.push_back(number);
    tasks_.push_back({std::move(work), after.size(), {}});
    if (after.empty()) ready_.push_back(number);
    return number;
}

ChildWork Agenda::take(std::uint64_t draw) {
    if (ready_.empty()) return std::move(tail_[tail_taken_++]);
    std::swap(ready_[draw % ready_.size()], ready_.back());
    Task& task = tasks_[ready_.back()];
    ready_.pop_back();
    for (const Number follower : task.followers)
        if (--tasks_[follower].unmet == 0) ready_.push_back(follower);
    return std::move(task.work);
}

std::uint64_t Children::prepare(Caller caller, std::uint64_t kernel, const std::uint32_t grid[3],
                                const std::uint32_t block[3], std::uint32_t shared_bytes) {
    const auto& kernels = parent_.image->program->kernels();
    if (kernel == 0 || kernel > kernels.size()) {
        noted(caller, Status::InvalidDeviceFunction);
        return 0;
    }
    auto launch = std::make_unique<Launch>();
    launch->image = parent_.image;
    launch->kernel = &kernels[kernel - 1];
    if (!is_shape(grid, 0) || !is_shape(block, launch->kernel->max_threads)) {
        noted(caller, Status::InvalidConfiguration);
        return 0;
    }
    if (const std::uint32_t(&cluster)[3] = launch->kernel->cluster; cluster[0] != 0) {
        for (int axis = 0; axis < 3; ++axis) {
            if (grid[axis] % cluster[axis] == 0) continue;
            noted(caller, Status::InvalidClusterSize);
            return 0;
        }
        std::copy_n(cluster, 3, launch->cluster);
        launch->explicit_cluster = true;
    }
    std::copy_n(grid, 3, launch->grid);
    std::copy_n(block, 3, launch->block);
    launch->dynamic_shared_bytes = shared_bytes;
    launch->multiprocessors = parent_.multiprocessors;
    launch->parameters.resize(std::max<std::size_t>(launch->kernel->parameter_bytes, 1));
    const std::uint64_t address = to_device(launch->parameters.data());
    const std::lock_guard lock(mutex_);
    prepared_[address] = std::move(launch);
    return address;
}

Status Children::launch(Caller caller, std::uint64_t parameters, std::uint64_t stream) {
    const std::lock_guard lock(mutex_);
    const auto found = prepared_.find(parameters);
    if (found == prepared_.end()) return Status::InvalidValue;
    const std::unique_ptr<Launch> launch = std::move(found->second);
    prepared_.erase(found);
    return submit(caller, std::move(*launch), stream);
}

Status Children::transfer(Caller caller, const Transfer& transfer, std::uint64_t stream) {
    const std::lock_guard lock(mutex_);
    return submit(caller, transfer, stream);
}

Status Children::submit(Caller caller, ChildWork work, std::uint64_t stream) {
    if (stream == kTailLaunch) {
        agenda_.add_tail(std::move(work));
    } else if (stream == kFireAndForget) {
        agenda_.add(std::move(work), {});
    } else {
        Position* position = find(caller, stream);
        if (!position) return Status::InvalidResourceHandle;
        *position = {agenda_.add(std::move(work), *position)};
    }
    return Status::Success;
}

// Null: there is none.
Children::Position* Children::find(Caller caller, std::uint64_t stream) {
    if (stream == kBlockStream || stream == kLegacyStream)
        return &own_streams_[{kBlockStream, {caller.block, 0}}];
    if (stream == kThreadStream) return &own_streams_[{kThreadStream, caller}];
    const auto found = streams_.find(stream);
    return found == streams_.end() ? nullptr : &found->second;
}

// Only what does not wait for the block's stream: the device runtime has no other streams.
Status Children::create_stream(std::uint64_t& handle, std::uint32_t flags) {
    if (flags != kNonBlocking) return Status::InvalidValue;
    handle = new_handle();
    const std::lock_guard lock(mutex_);
    streams_[handle];
    return Status::Success;
}

Status Children::destroy_stream(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    return streams_.erase(handle) ? Status::Success : Status::InvalidResourceHandle;
}

// Only what takes no time: the device runtime has no other events.
Status Children::create_event(std::uint64_t& handle, std::uint32_t flags) {
    if (flags != kDisableTiming) return Status::InvalidValue;
    handle = new_handle();
    const std::lock_guard lock(mutex_);
    events_[handle];
    return Status::Success;
}

Status Children::destroy_event(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    return events_.erase(handle) ? Status::Success : Status::InvalidResourceHandle;
}

Status Children::record(Caller caller, std::uint64_t event, std::uint64_t stream) {
    if (stream == kTailLaunch || stream == kFireAndForget) return Status::InvalidValue;
    const std::lock_guard lock(mutex_);
    const Position* position = find(caller, stream);
    const auto found = events_.find(event);
    if (!position || found == events_.end()) return Status::InvalidResourceHandle;
    found->second = *position;
    return Status::Success;
}

Status Children::wait(Caller caller, std::uint64_t stream, std::uint64_t event) {
    if (stream == kTailLaunch || stream == kFireAndForget) return Status::InvalidValue;
    const std::lock_guard lock(mutex_);
    Position* position = find(caller, stream);
    const auto found = events_.find(event);
    if (!position || found == events_.end()) return Status::InvalidResourceHandle;
    position->insert(found->second.begin(), found->second.end());
    return Status::Success;
}

Status Children::noted(Caller caller, Status status) {
    if (status == Status::Success) return status;
    const std::lock_guard lock(mutex_);
    return errors_[caller] = status;
}

Status Children::last_error(Caller caller, bool forget) {
    const std::lock_guard lock(mutex_);
    const auto found = errors_.find(caller);
    if (found == errors_.end()) return Status::Success;
    const Status status = found->second;
    if (forget) errors_.erase(found);
    return status;
}

Agenda Children::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(agenda_, {});
}

}  // namespace simcuda::exec

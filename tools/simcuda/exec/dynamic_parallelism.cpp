#include "tools/simcuda/exec/dynamic_parallelism.h"

#include <algorithm>
#include <utility>

namespace simcuda::exec {
namespace {

constexpr std::uint64_t kTailLaunchStream = 3;  // cudaStreamTailLaunch

bool is_shape(const std::uint32_t size[3], std::uint64_t most) {
    const std::uint64_t count = std::uint64_t{size[0]} * size[1] * size[2];
    return count > 0 && (most == 0 || count <= most);
}

}  // namespace

std::uint64_t Children::prepare(std::uint64_t kernel, const std::uint32_t grid[3],
                                const std::uint32_t block[3], std::uint32_t shared_bytes) {
    const auto& kernels = parent_.image->program->kernels();
    if (kernel == 0 || kernel > kernels.size()) return 0;
    auto launch = std::make_unique<Launch>();
    launch->image = parent_.image;
    launch->kernel = &kernels[kernel - 1];
    if (!is_shape(grid, 0) || !is_shape(block, launch->kernel->max_threads)) return 0;
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

bool Children::launch(std::uint64_t parameters, std::uint64_t stream) {
    const std::lock_guard lock(mutex_);
    const auto found = prepared_.find(parameters);
    if (found == prepared_.end()) return false;
    (stream == kTailLaunchStream ? last_ : launched_).push_back(std::move(*found->second));
    prepared_.erase(found);
    return true;
}

std::vector<Launch> Children::take() {
    const std::lock_guard lock(mutex_);
    std::vector<Launch> all = std::move(launched_);
    std::move(last_.begin(), last_.end(), std::back_inserter(all));
    launched_.clear();
    last_.clear();
    return all;
}

}  // namespace simcuda::exec

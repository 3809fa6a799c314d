#include "tools/simcuda/driver/cluster.h"

#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/function_attributes.h"

namespace simcuda::driver {
namespace {

constexpr unsigned kPortable = 8;   // blocks that every device with clusters can have in one
constexpr unsigned kAtMost = 16;    // that this one can
constexpr unsigned kTogether = 16;  // multiprocessors that blocks of one cluster may be spread over
constexpr unsigned kArchitecture = 90;

unsigned blocks_of(const ClusterShape& cluster) {
    return cluster[0] * cluster[1] * cluster[2];
}

bool is_asked_for(const ClusterShape& cluster) {
    return std::any_of(cluster.begin(), cluster.end(), [](unsigned blocks) { return blocks != 0; });
}

unsigned limit_of(const Function& function) {
    const unsigned limit = function.non_portable_cluster ? kAtMost : kPortable;
    const unsigned own = function.kernel->max_cluster;
    return own ? std::min(own, limit) : limit;
}

unsigned multiprocessors(const Function& function) {
    return static_cast<unsigned>(
        device_attribute(function.context->device(), CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
}

}  // namespace

ClusterShape required_cluster(const Function& function) {
    ClusterShape cluster;
    for (std::size_t axis = 0; axis < cluster.size(); ++axis) {
        const unsigned own = function.kernel->cluster[axis];
        cluster[axis] = own ? own : static_cast<unsigned>(function.required_cluster[axis].load());
    }
    return cluster;
}

ClusterShape cluster_of(const Function& function, const LaunchShape& shape) {
    const ClusterShape required = required_cluster(function);
    const ClusterShape given{shape.cluster[0], shape.cluster[1], shape.cluster[2]};
    const ClusterShape cluster = is_asked_for(given) ? given : required;
    if (!is_asked_for(cluster)) {
        require(!function.kernel->explicit_cluster || shape.cluster_comes_later,
                CUDA_ERROR_INVALID_CLUSTER_SIZE);
        return cluster;
    }
    const bool one = blocks_of(cluster) == 1;
    require(one || architecture(function.context->device()) >= kArchitecture, CUDA_ERROR_NOT_SUPPORTED);
    require(!is_asked_for(required) || cluster == required, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    for (std::size_t axis = 0; axis < cluster.size(); ++axis) {
        const unsigned blocks = cluster[axis];
        require(blocks != 0 && blocks <= kAtMost && shape.grid[axis] % blocks == 0,
                CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
    require(one || (blocks_of(cluster) <= limit_of(function) &&
                    clusters_at_once(function, blocks_of(cluster), threads, shape.dynamic_shared_bytes) != 0),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
    return cluster;
}

void set_cluster(exec::Launch& launch, const ClusterShape& cluster) {
    launch.explicit_cluster = is_asked_for(cluster);
    for (std::size_t axis = 0; axis < cluster.size(); ++axis)
        launch.cluster[axis] = std::max(cluster[axis], 1u);
}

unsigned clusters_at_once(const Function& function, unsigned blocks, unsigned threads,
                          std::size_t dynamic_shared_bytes) {
    const unsigned each = blocks_per_multiprocessor(function, threads, dynamic_shared_bytes);
    const unsigned count = multiprocessors(function);
    return count / kTogether * (kTogether * each / blocks) + count % kTogether * each / blocks;
}

unsigned largest_cluster(const Function& function, unsigned threads, std::size_t dynamic_shared_bytes) {
    const ClusterShape required = required_cluster(function);
    if (is_asked_for(required)) return blocks_of(required);
    const unsigned each = blocks_per_multiprocessor(function, threads, dynamic_shared_bytes);
    return std::min(limit_of(function), std::min(kTogether, multiprocessors(function)) * each);
}

}  // namespace simcuda::driver

// cuLaunch*: giving kernels to streams; and what fits at once.
#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/cluster.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/function_attributes.h"
#include "tools/simcuda/driver/launch.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

CUresult launch(Site site, CUfunction function, const LaunchShape& shape, CUstream handle, void** parameters,
                void** extra) {
    return call(site.entry, [&](Context& context) {
        const auto stream = launch_stream(context, handle, site.per_thread);
        submit(*stream, make_launch(context, function, shape, parameters, extra));
        return CUDA_SUCCESS;
    });
}

// What the attributes of an extended launch ask for. Hints are taken note of by nobody here.
struct Wishes {
    bool cooperative = false;
    bool programmatic = false;
    unsigned cluster[3] = {0, 0, 0};
    std::vector<CUevent> record_after;
};

Wishes wishes(const CUlaunchConfig& config) {
    Wishes wishes;
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const CUlaunchAttribute& attribute = config.attrs[i];
        const CUlaunchAttributeValue& value = attribute.value;
        switch (attribute.id) {
            case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
                wishes.cooperative = value.cooperative != 0;
                break;
            case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
                require(value.clusterDim.x != 0 && value.clusterDim.y != 0 && value.clusterDim.z != 0,
                        CUDA_ERROR_INVALID_CLUSTER_SIZE);
                wishes.cluster[0] = value.clusterDim.x;
                wishes.cluster[1] = value.clusterDim.y;
                wishes.cluster[2] = value.clusterDim.z;
                break;
            case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
                wishes.programmatic = value.programmaticStreamSerializationAllowed != 0;
                break;
            case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
                wishes.record_after.push_back(value.programmaticEvent.event);
                break;
            case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
                wishes.record_after.push_back(value.launchCompletionEvent.event);
                break;
            case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
                require(value.deviceUpdatableKernelNode.deviceUpdatable == 0, CUDA_ERROR_NOT_SUPPORTED);
                break;
            default:
                break;
        }
    }
    return wishes;
}

unsigned threads_of(const CUlaunchConfig& config) {
    return config.blockDimX * config.blockDimY * config.blockDimZ;
}

bool are_occupancy_flags(unsigned flags) {
    return flags == CU_OCCUPANCY_DEFAULT || flags == CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;
}

CUresult occupancy(int* blocks, Context& context, CUfunction function, int threads,
                   std::size_t shared_bytes) {
    require(blocks != nullptr && threads > 0, CUDA_ERROR_INVALID_VALUE);
    const auto launchable = find_launchable(function);
    *blocks = static_cast<int>(
        blocks_per_multiprocessor(launchable->bind(context), static_cast<unsigned>(threads), shared_bytes));
    return CUDA_SUCCESS;
}

// The block size that keeps most threads of a multiprocessor busy; the larger of equals.
CUresult best_block(Context& context, int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_for,
                    std::size_t shared_bytes, int limit) {
    require(grid != nullptr && block != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto launchable = find_launchable(handle);
    const Function& function = launchable->bind(context);
    int most = static_cast<int>(function.kernel->max_threads);
    if (limit > 0) most = std::min(most, limit);
    unsigned best = 0, best_blocks = 0;
    for (unsigned threads = 32; threads <= static_cast<unsigned>(most); threads += 32) {
        const std::size_t shared =
            shared_for != nullptr ? shared_for(static_cast<int>(threads)) : shared_bytes;
        const unsigned blocks = blocks_per_multiprocessor(function, threads, shared);
        if (blocks != 0 && blocks * threads >= best_blocks * best) {
            best = threads;
            best_blocks = blocks;
        }
    }
    require(best != 0, CUDA_ERROR_INVALID_VALUE);
    *block = static_cast<int>(best);
    *grid = static_cast<int>(best_blocks) *
            device_attribute(context.device(), CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_STREAM_API(cuLaunchKernel, _ptsz,
                   (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                    void** parameters, void** extra),
                   (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                    parameters, extra)) {
    const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, false};
    return launch(site, function, shape, stream, parameters, extra);
}

SIMCUDA_STREAM_API(cuLaunchCooperativeKernel, _ptsz,
                   (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                    void** parameters),
                   (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                    parameters)) {
    const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, true};
    return launch(site, function, shape, stream, parameters, nullptr);
}

SIMCUDA_STREAM_API(cuLaunchKernelEx, _ptsz,
                   (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra),
                   (config, function, parameters, extra)) {
    return call(site.entry, [&](Context& context) {
        require(config != nullptr && (config->attrs != nullptr || config->numAttrs == 0),
                CUDA_ERROR_INVALID_VALUE);
        const CUlaunchConfig& c = *config;
        const Wishes wish = wishes(c);
        const LaunchShape shape{{c.gridDimX, c.gridDimY, c.gridDimZ},
                                {c.blockDimX, c.blockDimY, c.blockDimZ},
                                c.sharedMemBytes,
                                wish.cooperative,
                                {wish.cluster[0], wish.cluster[1], wish.cluster[2]}};
        const auto stream = launch_stream(context, c.hStream, site.per_thread);
        auto op = make_launch(context, function, shape, parameters, extra);
        op.programmatic = wish.programmatic;
        submit(*stream, std::move(op));
        for (CUevent event : wish.record_after) record_event(*stream, *checked_event(event));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                        std::size_t shared_bytes) {
    return call(Entry::cuOccupancyMaxActiveBlocksPerMultiprocessor, [&](Context& context) {
        return occupancy(blocks, context, function, threads, shared_bytes);
    });
}

SIMCUDA_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                                 int threads, std::size_t shared_bytes,
                                                                 unsigned flags) {
    return call(Entry::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, [&](Context& context) {
        require(are_occupancy_flags(flags), CUDA_ERROR_INVALID_VALUE);
        return occupancy(blocks, context, function, threads, shared_bytes);
    });
}

SIMCUDA_API cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction function,
                                               const CUlaunchConfig* config) {
    return call(Entry::cuOccupancyMaxPotentialClusterSize, [&](Context& context) {
        require(blocks != nullptr && config != nullptr, CUDA_ERROR_INVALID_VALUE);
        require(architecture(context.device()) >= 90, CUDA_ERROR_NOT_SUPPORTED);
        const auto launchable = find_launchable(function);
        const unsigned largest =
            largest_cluster(launchable->bind(context), threads_of(*config), config->sharedMemBytes);
        require(largest != 0, CUDA_ERROR_INVALID_VALUE);
        *blocks = static_cast<int>(largest);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig* config) {
    return call(Entry::cuOccupancyMaxActiveClusters, [&](Context& context) {
        require(
            clusters != nullptr && config != nullptr && (config->attrs != nullptr || config->numAttrs == 0),
            CUDA_ERROR_INVALID_VALUE);
        const auto launchable = find_launchable(function);
        const Function& bound = launchable->bind(context);
        const ClusterShape required = required_cluster(bound);
        const Wishes wish = wishes(*config);
        ClusterShape cluster{wish.cluster[0], wish.cluster[1], wish.cluster[2]};
        if (cluster[0] == 0) cluster = required;
        require(cluster[0] != 0 && (required[0] == 0 || cluster == required),
                CUDA_ERROR_INVALID_CLUSTER_SIZE);
        const unsigned size = cluster[0] * cluster[1] * cluster[2];
        *clusters =
            static_cast<int>(clusters_at_once(bound, size, threads_of(*config), config->sharedMemBytes));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                             CUoccupancyB2DSize shared_for, std::size_t shared_bytes,
                                             int limit) {
    return call(Entry::cuOccupancyMaxPotentialBlockSize, [&](Context& context) {
        return best_block(context, grid, block, function, shared_for, shared_bytes, limit);
    });
}

SIMCUDA_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                      CUoccupancyB2DSize shared_for, std::size_t shared_bytes,
                                                      int limit, unsigned flags) {
    return call(Entry::cuOccupancyMaxPotentialBlockSizeWithFlags, [&](Context& context) {
        require(are_occupancy_flags(flags), CUDA_ERROR_INVALID_VALUE);
        return best_block(context, grid, block, function, shared_for, shared_bytes, limit);
    });
}

SIMCUDA_API cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, CUfunction function, int blocks,
                                                    int threads) {
    return call(Entry::cuOccupancyAvailableDynamicSMemPerBlock, [&](Context& context) {
        require(bytes != nullptr && blocks > 0 && threads > 0, CUDA_ERROR_INVALID_VALUE);
        const auto launchable = find_launchable(function);
        const Function& bound = launchable->bind(context);
        const auto per_multiprocessor = static_cast<std::size_t>(
            device_attribute(context.device(), CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
        const std::size_t per_block = per_multiprocessor / static_cast<std::size_t>(blocks);
        const std::size_t fixed = bound.kernel->static_shared_bytes;
        const auto opted_in = static_cast<std::size_t>(bound.max_dynamic_shared_bytes.load());
        *bytes = per_block > fixed ? std::min(per_block - fixed, opted_in) : 0;
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

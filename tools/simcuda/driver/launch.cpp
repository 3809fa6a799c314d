#include "tools/simcuda/driver/launch.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/cluster.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/random.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

unsigned attribute(const Device& device, CUdevice_attribute which) {
    return static_cast<unsigned>(device_attribute(device, which));
}

void name_once(const ptx::Kernel& kernel) {
    static std::mutex mutex;
    static auto& named = *new std::set<std::string>;
    std::lock_guard lock(mutex);
    if (!named.insert(kernel.name).second) return;
    message("kernel %s is not simulated (%s): CUDA_ERROR_NOT_SUPPORTED", kernel.name.c_str(),
            kernel.unsupported.c_str());
}

void check_shape(const Context& context, const Function& function, const LaunchShape& shape) {
    const Device& device = context.device();
    const ptx::Kernel& kernel = *function.kernel;
    for (int i = 0; i < 3; ++i) {
        const auto axis = [&](CUdevice_attribute x) { return static_cast<CUdevice_attribute>(x + i); };
        require(shape.grid[i] != 0 &&
                    shape.grid[i] <= attribute(device, axis(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)),
                CUDA_ERROR_INVALID_VALUE);
        require(shape.block[i] != 0 &&
                    shape.block[i] <= attribute(device, axis(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)),
                CUDA_ERROR_INVALID_VALUE);
    }
    const std::uint64_t threads = std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
    require(threads <= attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
                threads <= kernel.max_threads,
            CUDA_ERROR_INVALID_VALUE);
    const auto opted_in = static_cast<unsigned>(function.max_dynamic_shared_bytes.load());
    const unsigned shared_limit =
        attribute(device, opted_in > 48 * 1024 ? CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
                                               : CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    const bool fits = shape.dynamic_shared_bytes <= opted_in &&
                      kernel.static_shared_bytes + shape.dynamic_shared_bytes <= shared_limit;
    // Of a cooperative kernel no block is there at once.
    require(fits, shape.cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE);
    if (shape.cooperative) {
        const std::uint64_t at_once =
            std::uint64_t{blocks_per_multiprocessor(function, static_cast<unsigned>(threads),
                                                    shape.dynamic_shared_bytes)} *
            attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        const std::uint64_t blocks = std::uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
        require(blocks <= at_once, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
}

std::vector<std::byte> pack_each(const ptx::Kernel& kernel, void* const* parameters) {
    std::vector<std::byte> block(kernel.parameter_bytes);
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
        require(parameters[i] != nullptr, CUDA_ERROR_INVALID_VALUE);
        std::memcpy(block.data() + kernel.parameters[i].offset, parameters[i], kernel.parameters[i].bytes);
    }
    return block;
}

std::vector<std::byte> pack_buffer(const ptx::Kernel& kernel, void* const* extra) {
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[1];
        } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = *static_cast<const std::size_t*>(extra[1]);
        } else {
            throw Failure{CUDA_ERROR_INVALID_VALUE};
        }
    }
    require(bytes >= kernel.parameter_bytes && (buffer != nullptr || bytes == 0), CUDA_ERROR_INVALID_VALUE);
    std::vector<std::byte> block(kernel.parameter_bytes);
    if (!block.empty()) std::memcpy(block.data(), buffer, block.size());
    return block;
}

}  // namespace

std::shared_ptr<Stream> launch_stream(Context& context, CUstream handle, bool per_thread) {
    auto stream = resolve(context, handle, per_thread);
    require(&stream->context == &context, CUDA_ERROR_INVALID_HANDLE);
    return stream;
}

unsigned blocks_per_multiprocessor(const Function& function, unsigned threads,
                                   std::size_t dynamic_shared_bytes) {
    const Device& device = function.context->device();
    const unsigned warp = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    if (threads == 0 || threads > function.kernel->max_threads) return 0;
    const unsigned rounded = (threads + warp - 1) / warp * warp;
    std::uint64_t blocks =
        std::min(attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / rounded,
                 attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
    const std::uint64_t shared = function.kernel->static_shared_bytes + dynamic_shared_bytes;
    if (shared != 0) {
        blocks = std::min(
            blocks, attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / shared);
    }
    return static_cast<unsigned>(blocks);
}

KernelOp make_launch(Context& context, CUfunction handle, const LaunchShape& shape, void* const* parameters,
                     void* const* extra) {
    const auto launchable = find_launchable(handle);
    Function& function = launchable->bind(context);
    const ptx::Kernel& kernel = *function.kernel;
    if (!kernel.unsupported.empty()) {
        name_once(kernel);
        throw Failure{CUDA_ERROR_NOT_SUPPORTED};
    }
    check_shape(context, function, shape);
    require(parameters == nullptr || extra == nullptr, CUDA_ERROR_INVALID_VALUE);
    require(parameters != nullptr || extra != nullptr || kernel.parameters.empty(), CUDA_ERROR_INVALID_VALUE);

    KernelOp op;
    exec::Launch& launch = op.launch;
    op.function = handle;
    launch.image = function.image;
    launch.kernel = &kernel;
    std::copy_n(shape.grid, 3, launch.grid);
    std::copy_n(shape.block, 3, launch.block);
    set_cluster(launch, cluster_of(function, shape));
    launch.dynamic_shared_bytes = shape.dynamic_shared_bytes;
    launch.parameters = extra != nullptr ? pack_buffer(kernel, extra) : pack_each(kernel, parameters);
    launch.cooperative = shape.cooperative;
    launch.multiprocessors = attribute(context.device(), CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    launch.time_limit_ns = knobs().kernel_timeout_ms * 1'000'000;
    launch.seed = thread_random().below(UINT64_MAX);
    context.reserve_local(kernel.local_bytes);
    return op;
}

}  // namespace simcuda::driver

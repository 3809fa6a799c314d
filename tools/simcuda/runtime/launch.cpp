#include "tools/simcuda/runtime/launch.h"

#include "tools/simcuda/runtime/registry.h"

namespace simcuda::runtime {
namespace {

bool within(const Driver& cu, CUdevice device, unsigned value, CUdevice_attribute limit) {
    int most = 0;
    return cu.cuDeviceGetAttribute(&most, limit, device) == CUDA_SUCCESS && value != 0 &&
           value <= static_cast<unsigned>(most);
}

// The driver has one code for every bad argument of a launch; the runtime tells a shape that no kernel can
// have.
Status shape_or(const Driver& cu, CUresult result, dim3 grid, dim3 block) {
    if (result != CUDA_ERROR_INVALID_VALUE) return result;
    CUdevice device = current_device(cu);
    bool possible =
        within(cu, device, grid.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) &&
        within(cu, device, grid.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) &&
        within(cu, device, grid.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) &&
        within(cu, device, block.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) &&
        within(cu, device, block.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) &&
        within(cu, device, block.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) &&
        within(cu, device, block.x * block.y * block.z, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    return possible ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
}

// cuLaunchKernel accepts a CUkernel in the place of a CUfunction.
CUfunction launchable(const Driver& cu, const void* entry) {
    return reinterpret_cast<CUfunction>(Registry::instance().kernel(cu, entry));
}

template <Form form>
cudaError_t launch_cooperative(const void* entry, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        auto function = RT_DRIVER(cu, form, cuLaunchCooperativeKernel, _ptsz);
        CUresult result = function(launchable(cu, entry), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                   static_cast<unsigned>(shared_bytes), stream, arguments);
        return shape_or(cu, result, grid, block);
    });
}

CUlaunchConfig driver_config_of(const cudaLaunchConfig_t* config) {
    require(config != nullptr, cudaErrorInvalidValue);
    static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
    CUlaunchConfig driver_config{};
    driver_config.gridDimX = config->gridDim.x;
    driver_config.gridDimY = config->gridDim.y;
    driver_config.gridDimZ = config->gridDim.z;
    driver_config.blockDimX = config->blockDim.x;
    driver_config.blockDimY = config->blockDim.y;
    driver_config.blockDimZ = config->blockDim.z;
    driver_config.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
    driver_config.hStream = config->stream;
    driver_config.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
    driver_config.numAttrs = config->numAttrs;
    return driver_config;
}

template <Form form>
cudaError_t launch_ex(const cudaLaunchConfig_t* config, const void* entry, void** arguments) {
    return run([&](const Driver& cu) {
        const CUlaunchConfig driver_config = driver_config_of(config);
        auto function = RT_DRIVER(cu, form, cuLaunchKernelEx, _ptsz);
        CUresult result = function(&driver_config, launchable(cu, entry), arguments, nullptr);
        return shape_or(cu, result, config->gridDim, config->blockDim);
    });
}

}  // namespace

template <Form form>
cudaError_t launch(const void* entry, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                   cudaStream_t stream) {
    return run([&](const Driver& cu) {
        auto function = RT_DRIVER(cu, form, cuLaunchKernel, _ptsz);
        CUresult result = function(launchable(cu, entry), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                   static_cast<unsigned>(shared_bytes), stream, arguments, nullptr);
        return shape_or(cu, result, grid, block);
    });
}

template cudaError_t launch<Form::Legacy>(const void*, dim3, dim3, void**, std::size_t, cudaStream_t);
template cudaError_t launch<Form::PerThread>(const void*, dim3, dim3, void**, std::size_t, cudaStream_t);

}  // namespace simcuda::runtime

using namespace simcuda::runtime;

RT_EXPORT_STREAM(cudaLaunchKernel, _ptsz, launch)
RT_EXPORT_STREAM(cudaLaunchCooperativeKernel, _ptsz, launch_cooperative)
RT_EXPORT_STREAM(cudaLaunchKernelExC, _ptsz, launch_ex)

cudaError_t cudaOccupancyMaxPotentialClusterSize(int* blocks, const void* entry,
                                                 const cudaLaunchConfig_t* config) {
    return run([&](const Driver& cu) {
        const CUlaunchConfig driver_config = driver_config_of(config);
        return cu.cuOccupancyMaxPotentialClusterSize(blocks, Registry::instance().function(cu, entry),
                                                     &driver_config);
    });
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* entry,
                                           const cudaLaunchConfig_t* config) {
    return run([&](const Driver& cu) {
        const CUlaunchConfig driver_config = driver_config_of(config);
        return cu.cuOccupancyMaxActiveClusters(clusters, Registry::instance().function(cu, entry),
                                               &driver_config);
    });
}

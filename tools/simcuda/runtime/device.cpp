// What can be asked of the machine: versions, devices and their properties, peers, driver entry points,
// formats.
#include <climits>

#include "tools/simcuda/runtime/call.h"

namespace simcuda::runtime {
namespace {

cudaError_t entry_point(const char* symbol, void** function, unsigned version, unsigned long long flags,
                        cudaDriverEntryPointQueryResult* status) {
    return run<Need::Driver>([&](const Driver& cu) -> Status {
        require(symbol != nullptr && function != nullptr, cudaErrorInvalidValue);
        CUdriverProcAddressQueryResult found{};
        CUresult result = cu.cuGetProcAddress_v2(symbol, function, static_cast<int>(version), flags, &found);
        if (status) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
        // Not to find it is an answer, not an error.
        return result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
    });
}

template <Form form>
cudaError_t entry_point_by_version(const char* symbol, void** function, unsigned version,
                                   unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
    if (flags == cudaEnableDefault && form == Form::PerThread) flags = cudaEnablePerThreadDefaultStream;
    return entry_point(symbol, function, version, flags, status);
}

template <Form form>
cudaError_t entry_point_of_runtime(const char* symbol, void** function, unsigned long long flags,
                                   cudaDriverEntryPointQueryResult* status) {
    return entry_point_by_version<form>(symbol, function, CUDART_VERSION, flags, status);
}

}  // namespace
}  // namespace simcuda::runtime

using namespace simcuda::runtime;

RT_EXPORT_STREAM(cudaGetDriverEntryPoint, _ptsz, entry_point_of_runtime)
RT_EXPORT_STREAM(cudaGetDriverEntryPointByVersion, _ptsz, entry_point_by_version)

cudaError_t cudaRuntimeGetVersion(int* version) {
    if (!version) return record(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

// 0 where there is no driver.
cudaError_t cudaDriverGetVersion(int* version) {
    if (!version) return record(cudaErrorInvalidValue);
    *version = 0;
    cudaError_t error;
    const Driver* cu = driver(error);
    return cu ? record(to_runtime_error(cu->cuDriverGetVersion(version))) : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return run<Need::Driver>([&](const Driver& cu) -> Status {
        require(properties != nullptr, cudaErrorInvalidValue);
        cudaDeviceProp out{};
        require(cu.cuDeviceGetName(out.name, sizeof(out.name), device));
        require(cu.cuDeviceGetUuid_v2(reinterpret_cast<CUuuid*>(&out.uuid), device));
        require(cu.cuDeviceTotalMem_v2(&out.totalGlobalMem, device));
        auto attribute = [&](CUdevice_attribute which) {
            int value = 0;
            require(cu.cuDeviceGetAttribute(&value, which, device));
            return value;
        };
#define RT_PROPERTY(field, name) \
    out.field = static_cast<decltype(out.field + 0)>(attribute(CU_DEVICE_ATTRIBUTE_##name));
#include "tools/simcuda/runtime/properties.def"
        *properties = out;
        return cudaSuccess;
    });
}

// The device that lacks least of what is asked for.
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
    if (!device || !wanted) return record(cudaErrorInvalidValue);
    int count = 0;
    if (cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return error;
    int best_lacks = INT_MAX;
    for (int i = 0; i < count; ++i) {
        cudaDeviceProp has{};
        if (cudaError_t error = cudaGetDeviceProperties(&has, i); error != cudaSuccess) return error;
        int lacks = (has.major * 10 + has.minor < wanted->major * 10 + wanted->minor) +
                    (has.totalGlobalMem < wanted->totalGlobalMem) +
                    (has.multiProcessorCount < wanted->multiProcessorCount) +
                    (has.sharedMemPerBlock < wanted->sharedMemPerBlock);
        if (lacks < best_lacks) {
            best_lacks = lacks;
            *device = i;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
    return run([&](const Driver& cu) { return cu.cuCtxEnablePeerAccess(primary_context(cu, peer), flags); });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    return run([&](const Driver& cu) { return cu.cuCtxDisablePeerAccess(primary_context(cu, peer)); });
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}

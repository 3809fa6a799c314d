// A libcuda.so.1 whose calls do nothing, so that what `calls` costs under the shim is the shim's. Just what
// that program and the shim behind it use; addresses lead nowhere and are never followed. (The simulated
// GPU's address space is too large for valgrind.)
#include <cuda.h>

#undef cuMemAlloc
#undef cuMemcpyHtoDAsync

#define STILL(name, ...)         \
    CUresult name(__VA_ARGS__) { \
        return CUDA_SUCCESS;     \
    }

extern "C" {

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
    *value = 1;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
    static char any;
    *context = reinterpret_cast<CUcontext>(&any);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = *total_bytes = 1ull << 30;
    return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
    *bytes = 2 << 20;
    return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t, size_t, CUdeviceptr, unsigned long long) {
    *address = 1ull << 40;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t) {
    *address = 1ull << 39;
    return CUDA_SUCCESS;
}
STILL(cuInit, unsigned)
STILL(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)
STILL(cuCtxSetCurrent, CUcontext)
STILL(cuCtxPushCurrent_v2, CUcontext)
STILL(cuCtxPopCurrent_v2, CUcontext*)
STILL(cuStreamCreate, CUstream*, unsigned)
STILL(cuEventCreate, CUevent*, unsigned)
STILL(cuMemAddressFree, CUdeviceptr, size_t)
STILL(cuMemCreate, CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long)
STILL(cuMemRelease, CUmemGenericAllocationHandle)
STILL(cuMemMap, CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)
STILL(cuMemUnmap, CUdeviceptr, size_t)
STILL(cuMemSetAccess, CUdeviceptr, size_t, const CUmemAccessDesc*, size_t)
STILL(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
      CUstream, void**, void**)
STILL(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, size_t, CUstream)
STILL(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void*, size_t, CUstream)
STILL(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)
STILL(cuEventRecord, CUevent, CUstream)
STILL(cuPointerGetAttribute, void*, CUpointer_attribute, CUdeviceptr)
}

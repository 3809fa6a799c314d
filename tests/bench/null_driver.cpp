// A libcuda.so.1 whose calls do nothing, so that what `calls` costs under the shim is the shim's. Here is
// what must be answered; addresses lead nowhere and are never followed. (The simulated GPU's address space is
// too large for valgrind.)
#include <cuda.h>

#include <cstdint>
#include <cstdlib>

#undef cuMemAlloc

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
CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
    return cuCtxGetCurrent(context);
}
CUresult cuCtxGetDevice(CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned) {
    static std::uint64_t streams[1 << 12];
    static std::uint64_t* next = streams;
    *stream = reinterpret_cast<CUstream>(next++);
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
    static std::uint64_t any;
    *event = reinterpret_cast<CUevent>(&any);
    return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent, CUevent) {
    *milliseconds = 0;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = *total_bytes = 1ull << 42;
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
// Addresses, eight or two of them as the kernel says, and a number.
CUresult cuFuncGetParamInfo(CUfunction kernel, size_t index, size_t* offset, size_t* bytes) {
    const size_t addresses = *reinterpret_cast<const int*>(kernel) == 8 ? 8 : 2;
    if (index > addresses) return CUDA_ERROR_INVALID_VALUE;
    *offset = 8 * index;
    *bytes = index < addresses ? 8 : 4;
    return CUDA_SUCCESS;
}
// Or the shim would try moves through it, before the first, and find that nothing moves.
CUresult cuMemHostAlloc(void**, size_t, unsigned) {
    return CUDA_ERROR_OUT_OF_MEMORY;
}
// With NULL_DRIVER_BUSY nothing ever ends.
CUresult cuEventQuery(CUevent) {
    static const bool busy = std::getenv("NULL_DRIVER_BUSY") != nullptr;
    return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t) {
    *address = 1ull << 39;
    return CUDA_SUCCESS;
}
}

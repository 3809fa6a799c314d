// Allocation, and what can be asked about a pointer.
#include <iterator>

#include "tools/simcuda/runtime/call.h"

namespace simcuda::runtime {
namespace {

constexpr unsigned kPitchAccessBytes = 4;  // cuMemAllocPitch: the largest access that rows must not straddle

// The runtime answers a null pointer to a request for nothing, where the driver refuses.
template <class Allocate>
cudaError_t allocate(void** pointer, std::size_t bytes, Allocate allocate_bytes) {
    return run([&](const Driver& cu) {
        require(pointer != nullptr, cudaErrorInvalidValue);
        *pointer = nullptr;
        return bytes == 0 ? CUDA_SUCCESS : allocate_bytes(cu);
    });
}

CUdeviceptr* device(void** pointer) {
    return reinterpret_cast<CUdeviceptr*>(pointer);
}

cudaMemoryType memory_type(unsigned type, bool managed) {
    if (managed) return cudaMemoryTypeManaged;
    switch (type) {
        case CU_MEMORYTYPE_HOST:
            return cudaMemoryTypeHost;
        case CU_MEMORYTYPE_DEVICE:
            return cudaMemoryTypeDevice;
        default:
            return cudaMemoryTypeUnregistered;
    }
}

}  // namespace
}  // namespace simcuda::runtime

using namespace simcuda::runtime;

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    return allocate(pointer, bytes,
                    [&](const Driver& cu) { return cu.cuMemAlloc_v2(device(pointer), bytes); });
}

cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned int flags) {
    return run([&](const Driver& cu) {
        require(pointer != nullptr && bytes != 0, cudaErrorInvalidValue);
        return cu.cuMemAllocManaged(device(pointer), bytes, flags);
    });
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int flags) {
    return allocate(pointer, bytes,
                    [&](const Driver& cu) { return cu.cuMemHostAlloc(pointer, bytes, flags); });
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
    return run([&](const Driver& cu) {
        require(pointer != nullptr && pitch != nullptr, cudaErrorInvalidValue);
        *pointer = nullptr;
        *pitch = 0;
        if (width == 0 || height == 0) return CUDA_SUCCESS;
        return cu.cuMemAllocPitch_v2(device(pointer), pitch, width, height, kPitchAccessBytes);
    });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* memory, cudaExtent extent) {
    return run([&](const Driver& cu) {
        require(memory != nullptr, cudaErrorInvalidValue);
        *memory = {nullptr, 0, extent.width, extent.height};
        if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
        std::size_t rows = 0;
        require(!__builtin_mul_overflow(extent.height, extent.depth, &rows), cudaErrorInvalidValue);
        return cu.cuMemAllocPitch_v2(device(&memory->ptr), &memory->pitch, extent.width, rows,
                                     kPitchAccessBytes);
    });
}

cudaError_t cudaFree(void* pointer) {
    return run([&](const Driver& cu) {
        return pointer ? cu.cuMemFree_v2(reinterpret_cast<CUdeviceptr>(pointer)) : CUDA_SUCCESS;
    });
}

cudaError_t cudaFreeHost(void* pointer) {
    return run([&](const Driver& cu) { return pointer ? cu.cuMemFreeHost(pointer) : CUDA_SUCCESS; });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    return run([&](const Driver& cu) -> Status {
        require(attributes != nullptr, cudaErrorInvalidValue);
        unsigned type = 0;
        unsigned managed = 0;
        int ordinal = cudaInvalidDeviceId;
        void* on_device = nullptr;
        void* on_host = nullptr;
        CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                       CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                       CU_POINTER_ATTRIBUTE_HOST_POINTER};
        void* values[] = {&type, &managed, &ordinal, &on_device, &on_host};
        require(cu.cuPointerGetAttributes(std::size(names), names, values,
                                          reinterpret_cast<CUdeviceptr>(pointer)));
        *attributes = {};
        attributes->type = memory_type(type, managed != 0);
        attributes->device = ordinal;
        attributes->devicePointer = on_device;
        attributes->hostPointer = on_host;
        return cudaSuccess;
    });
}

// Device memory, page-locked host memory and managed memory: allocation and its questions.
//
// What is given back is found by its address or handle, and knows its context: none need be current, which
// cuda.h does not promise. numba's tests (0.68.1) need it of cuMemFree, cuMemFreeHost, cuMemHostUnregister,
// cuModuleUnload, cuEventDestroy and cuStreamDestroy: cuda.close() pops the last context before it frees, and
// raises what is answered. NVIDIA/cuda-python#2750 says it of cuMemFree ("with any context or none current")
// and of whatever has a handle, which textures and surfaces have not; openucx/ucx#10643 of
// cuMemHostUnregister.
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/graph/graph_memory.h"
#include "tools/simcuda/driver/pool.h"
#include "tools/simcuda/driver/report.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

constexpr std::uint64_t kPitchUnit = 512;

CUresult free_device(CUdeviceptr address) {
    if (address == 0) return current_context() != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    const RegionPtr region = memory_map().find(address);
    const bool freeable = region != nullptr && region->address == address &&
                          (region->kind == Region::Kind::Device || region->kind == Region::Kind::Async ||
                           region->kind == Region::Kind::Managed);
    if (!freeable) {
        violation("cuMemFree of something that is not the start of an allocation");
        return CUDA_ERROR_INVALID_VALUE;
    }
    // Of a pool's memory the program has seen to that.
    if (region->kind == Region::Kind::Async && region->graph_memory == nullptr) {
        region->pool->begin_free(address);
        return free_to_pool(*region) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    finish_work_on(*region);
    if (region->graph_memory != nullptr) {
        require(region->graph_memory->set_outstanding(false), CUDA_ERROR_INVALID_VALUE);
        region->graph_memory->end_use();
        return CUDA_SUCCESS;
    }
    if (memory_map().remove(address) == nullptr)
        return CUDA_ERROR_INVALID_VALUE;  // freed by another thread just now
    dispose(*region);
    return CUDA_SUCCESS;
}

CUresult allocate_pinned(Context& context, void** out, std::size_t bytes, unsigned flags) {
    require(out != nullptr && bytes != 0, CUDA_ERROR_INVALID_VALUE);
    constexpr unsigned kFlags =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    require((flags & ~kFlags) == 0, CUDA_ERROR_INVALID_VALUE);
    const RegionPtr region = allocate_host(context, bytes, flags, Region::Kind::Pinned);
    *out = reinterpret_cast<void*>(region->address);
    return CUDA_SUCCESS;
}

RegionPtr page_locked(void* pointer) {
    const RegionPtr region = memory_map().find(reinterpret_cast<std::uint64_t>(pointer));
    require(region != nullptr &&
                (region->kind == Region::Kind::Pinned || region->kind == Region::Kind::Registered),
            CUDA_ERROR_INVALID_VALUE);
    return region;
}

}  // namespace

SIMCUDA_API cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
    return call(Entry::cuMemGetInfo_v2, [&](Context& context) {
        const PhysicalPool& memory = context.device().memory;
        if (total != nullptr) *total = memory.capacity();
        if (free != nullptr) *free = memory.free_bytes();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
    return call(Entry::cuMemAlloc_v2, kUnsafeInCapture, [&](Context& context) {
        require(address != nullptr && bytes != 0, CUDA_ERROR_INVALID_VALUE);
        *address = allocate_device(context, bytes)->address;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width,
                               std::size_t height, unsigned element_bytes) {
    return call(Entry::cuMemAllocPitch_v2, kUnsafeInCapture, [&](Context& context) {
        require(address != nullptr && pitch != nullptr && width != 0 && height != 0,
                CUDA_ERROR_INVALID_VALUE);
        require(element_bytes == 4 || element_bytes == 8 || element_bytes == 16, CUDA_ERROR_INVALID_VALUE);
        *pitch = round_up(width, kPitchUnit);
        std::size_t bytes = 0;
        require(*pitch >= width && !__builtin_mul_overflow(*pitch, height, &bytes), CUDA_ERROR_INVALID_VALUE);
        *address = allocate_device(context, bytes)->address;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemFree_v2(CUdeviceptr address) {
    return call(Entry::cuMemFree_v2, kUnsafeInCapture | kNotAfterFailure,
                [&] { return free_device(address); });
}

SIMCUDA_API cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
    return call(Entry::cuMemGetAddressRange_v2, [&](Context&) {
        const RegionPtr region = memory_map().find(address);
        require(region != nullptr, CUDA_ERROR_NOT_FOUND);
        if (base != nullptr) *base = region->address;
        if (bytes != nullptr) *bytes = region->bytes;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
    return call(Entry::cuMemHostAlloc, kUnsafeInCapture,
                [&](Context& context) { return allocate_pinned(context, pointer, bytes, flags); });
}

SIMCUDA_API cuMemAllocHost_v2(void** pointer, std::size_t bytes) {
    return call(Entry::cuMemAllocHost_v2, kUnsafeInCapture,
                [&](Context& context) { return allocate_pinned(context, pointer, bytes, 0); });
}

SIMCUDA_API cuMemFreeHost(void* pointer) {
    return call(Entry::cuMemFreeHost, kUnsafeInCapture | kNotAfterFailure, [&] {
        const RegionPtr region = page_locked(pointer);
        require(region->kind == Region::Kind::Pinned, CUDA_ERROR_INVALID_VALUE);
        require(region->address == reinterpret_cast<std::uint64_t>(pointer), CUDA_ERROR_INVALID_VALUE);
        require(!in_device_window(region->address), CUDA_ERROR_INVALID_VALUE);
        finish_work_on(*region);
        require(memory_map().remove(region->address) != nullptr, CUDA_ERROR_INVALID_VALUE);
        if (region->twin != 0) dispose(*memory_map().remove(region->twin));
        dispose(*region);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
    return call(Entry::cuMemHostRegister_v2, kUnsafeInCapture, [&](Context& context) {
        constexpr unsigned kFlags =
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
        require(pointer != nullptr && bytes != 0 && (flags & ~kFlags) == 0, CUDA_ERROR_INVALID_VALUE);
        register_host(context, reinterpret_cast<std::uint64_t>(pointer), bytes, flags);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemHostUnregister(void* pointer) {
    return call(Entry::cuMemHostUnregister, kUnsafeInCapture | kNotAfterFailure, [&] {
        require(pointer != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto address = reinterpret_cast<std::uint64_t>(pointer);
        if (const RegionPtr region = memory_map().find(address); region != nullptr) finish_work_on(*region);
        unregister_host(address);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned flags) {
    return call(Entry::cuMemHostGetDevicePointer_v2, [&](Context&) {
        require(address != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        const RegionPtr region = page_locked(pointer);
        *address = reinterpret_cast<CUdeviceptr>(pointer) - region->address + region->device_address();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemHostGetFlags(unsigned* flags, void* pointer) {
    return call(Entry::cuMemHostGetFlags, [&](Context&) {
        require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
        *flags = page_locked(pointer)->flags | CU_MEMHOSTALLOC_DEVICEMAP;  // by unified addressing
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned flags) {
    return call(Entry::cuMemAllocManaged, kUnsafeInCapture, [&](Context& context) {
        require(address != nullptr && bytes != 0, CUDA_ERROR_INVALID_VALUE);
        require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST, CUDA_ERROR_INVALID_VALUE);
        *address = allocate_host(context, bytes, flags, Region::Kind::Managed)->address;
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

// Virtual memory management. The rules are vmm.cpp's; this adds the time the calls take and the world moving
// on meanwhile.
#include "tools/simcuda/driver/vmm.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/random.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

// Runs the call between two pauses in which queued work goes on: the effect falls at a random moment of the
// call.
template <class Body>
CUresult vmm_call(Entry entry, Body&& body) {
    return call(entry, kNotAfterFailure | kUnsafeInCapture, [&] {
        thread_random().delay();
        const CUresult result = body();
        spend_ns(1000 * knobs().vmm_us);
        thread_random().delay();
        return result;
    });
}

void drain_devices() {
    for (Device& device : devices()) {
        for (const auto& context : contexts_of(device)) synchronize(*context);
    }
}

}  // namespace

SIMCUDA_API cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment,
                                CUdeviceptr hint, unsigned long long flags) {
    return vmm_call(Entry::cuMemAddressReserve, [&] {
        require(address != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        *address = vmm::reserve(bytes, alignment, hint);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
    return vmm_call(Entry::cuMemAddressFree, [&] {
        vmm::free_reservation(address, bytes);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                        const CUmemAllocationProp* properties, unsigned long long flags) {
    return vmm_call(Entry::cuMemCreate, [&] {
        require(handle != nullptr && properties != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        *handle = vmm::create(bytes, *properties);
        if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) spend_pinning(bytes);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemRelease(CUmemGenericAllocationHandle handle) {
    return vmm_call(Entry::cuMemRelease, [&] {
        vmm::release(handle);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                         CUmemAllocationHandleType type, unsigned long long flags) {
    return vmm_call(Entry::cuMemExportToShareableHandle, [&] {
        require(shareable != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
        *static_cast<int*>(shareable) = vmm::export_file(handle);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                           CUmemAllocationHandleType type) {
    return vmm_call(Entry::cuMemImportFromShareableHandle, [&] {
        require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
        require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
        *handle = vmm::import_file(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    return vmm_call(Entry::cuMemRetainAllocationHandle, [&] {
        require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
        *handle = vmm::retain(reinterpret_cast<CUdeviceptr>(address));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags) {
    return vmm_call(Entry::cuMemMap, [&] {
        require(offset == 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
        vmm::map(address, bytes, handle);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
    return vmm_call(Entry::cuMemUnmap, [&] {
        if (knobs().unmap_drains) drain_devices();
        vmm::unmap(address, bytes);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptions,
                           std::size_t count) {
    return vmm_call(Entry::cuMemSetAccess, [&] {
        require(descriptions != nullptr && count != 0, CUDA_ERROR_INVALID_VALUE);
        vmm::set_access(address, bytes, {descriptions, count});
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    return call(Entry::cuMemGetAccess, kNotAfterFailure, [&] {
        require(flags != nullptr && location != nullptr, CUDA_ERROR_INVALID_VALUE);
        *flags = vmm::access(address, *location);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                                          CUmemAllocationGranularity_flags option) {
    return call(Entry::cuMemGetAllocationGranularity, [&] {
        require(bytes != nullptr && properties != nullptr, CUDA_ERROR_INVALID_VALUE);
        require(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
                CUDA_ERROR_INVALID_VALUE);
        vmm::check_location(properties->location);
        *bytes = knobs().granularity;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                   CUmemGenericAllocationHandle handle) {
    return call(Entry::cuMemGetAllocationPropertiesFromHandle, kNotAfterFailure, [&] {
        require(properties != nullptr, CUDA_ERROR_INVALID_VALUE);
        *properties = vmm::properties(handle);
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

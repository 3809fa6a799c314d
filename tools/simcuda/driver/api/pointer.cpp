// cuPointer*: what an address is.
#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/pool.h"
#include "tools/simcuda/driver/vmm.h"

namespace simcuda::driver {
namespace {

template <class Value>
void give(void* out, Value value) {
    *static_cast<Value*>(out) = value;
}

bool host_can_reach(const Region& region) {
    return region.on_host()
               ? region.kind != Region::Kind::Mapping || region.host_access != CU_MEM_ACCESS_FLAGS_PROT_NONE
               : region.kind == Region::Kind::Managed;
}

// The range the program got in one piece: an allocation, or for mapped memory the reservation it lies in.
vmm::Range whole_range(const Region& region) {
    if (region.kind == Region::Kind::Mapping) return vmm::reservation_of(region.address);
    return {region.address, region.bytes};
}

CUmemAllocationHandleType allowed_handle_types(const Region& region) {
    if (region.allocation != nullptr)
        return static_cast<CUmemAllocationHandleType>(region.allocation->properties.requestedHandleTypes);
    return region.pool != nullptr && region.pool->shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                            : CU_MEM_HANDLE_TYPE_NONE;
}

CUcontext context_of(const Region& region) {
    const auto context = region.kind == Region::Kind::Async ? nullptr : region.context.lock();
    return context == nullptr ? nullptr : context->handle();
}

// What is asked for the current context; the rest is told without one as well: Open MPI's threads learn a
// buffer's context so.
const Device& current_device() {
    const Context* const context = current_context();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    return context->device();
}

CUmemAccess_flags access_of(const Device& device, const Region& region) {
    if (region.kind != Region::Kind::Mapping) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return region.device_access[static_cast<std::size_t>(device.ordinal)];
}

void answer(const Region& region, CUpointer_attribute attribute, CUdeviceptr pointer, void* out) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return give(out, context_of(region));
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return give<unsigned>(out, region.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            require(region.accessible(current_device()), CUDA_ERROR_INVALID_VALUE);
            return give(out, pointer - region.address + region.device_address());
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            require(host_can_reach(region), CUDA_ERROR_INVALID_VALUE);
            return give(out, reinterpret_cast<void*>(pointer - region.address + region.host_address()));
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return give<unsigned>(out, region.sync_memops);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return give<unsigned long long>(out, region.buffer_id);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return give<unsigned>(out, region.kind == Region::Kind::Managed);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return give<int>(out, region.device == nullptr ? CU_DEVICE_CPU : region.device->ordinal);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return give(out, whole_range(region).address);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return give<std::size_t>(out, whole_range(region).bytes);
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return give<unsigned>(out, 1);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return give<std::uint64_t>(out, allowed_handle_types(region));
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            return give<unsigned>(out, region.kind == Region::Kind::Device);
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
            return give<unsigned>(out, 0);
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return give(out, access_of(current_device(), region));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return give(out, region.pool == nullptr ? CUmemoryPool{} : region.pool->handle());
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return give<std::size_t>(out, region.bytes);
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return give(out, region.address);
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

// For an address nothing is known of, or one that is reserved and not mapped: what can be said all the same.
bool answer_unmapped(CUpointer_attribute attribute, CUdeviceptr pointer, void* out) {
    const vmm::Range range = vmm::reservation_of(pointer);
    if (range.bytes == 0) return false;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MAPPED:
            give<unsigned>(out, 0);
            return true;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            give(out, range.address);
            return true;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            give<std::size_t>(out, range.bytes);
            return true;
        default:
            return false;
    }
}

// What cuPointerGetAttributes leaves for an attribute that does not apply.
void clear(CUpointer_attribute attribute, void* out) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return give<std::uint64_t>(out, 0);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return give<int>(out, CU_DEVICE_INVALID);
        default:
            return give<unsigned>(out, 0);
    }
}

void check(CUpointer_attribute attribute, const void* out) {
    require(out != nullptr && attribute > 0 && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
            CUDA_ERROR_INVALID_VALUE);
    require(attribute != CU_POINTER_ATTRIBUTE_P2P_TOKENS, CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace

SIMCUDA_API cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return call(Entry::cuPointerGetAttribute, kNotAfterFailure, [&] {
        check(attribute, out);
        if (const RegionPtr region = memory_map().find(pointer); region != nullptr) {
            answer(*region, attribute, pointer, out);
            return CUDA_SUCCESS;
        }
        return answer_unmapped(attribute, pointer, out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

SIMCUDA_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** out,
                                   CUdeviceptr pointer) {
    return call(Entry::cuPointerGetAttributes, kNotAfterFailure, [&] {
        require(count != 0 && count <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE &&
                    attributes != nullptr && out != nullptr,
                CUDA_ERROR_INVALID_VALUE);
        const RegionPtr region = memory_map().find(pointer);
        for (unsigned i = 0; i < count; ++i) {
            check(attributes[i], out[i]);
            try {
                if (region != nullptr) {
                    answer(*region, attributes[i], pointer, out[i]);
                } else if (!answer_unmapped(attributes[i], pointer, out[i])) {
                    clear(attributes[i], out[i]);
                }
            } catch (const Failure&) {
                clear(attributes[i], out[i]);
            }
        }
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return call(Entry::cuPointerSetAttribute, [&](Context&) {
        require(value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
        const RegionPtr region = memory_map().find(pointer);
        require(region != nullptr, CUDA_ERROR_INVALID_VALUE);
        auto changed = std::make_shared<Region>(*region);
        changed->sync_memops = *static_cast<const unsigned*>(value) != 0;
        memory_map().insert(changed);
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

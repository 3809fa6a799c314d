// What the program can ask about its memory: the same answer wherever the bytes are.
#include <algorithm>
#include <cstdint>

#include "shim/device/driver_table.h"
#include "shim/entry/context_check.h"
#include "shim/entry/guard.h"
#include "shim/executor/budget.h"
#include "shim/session/pools.h"
#include "shim/session/program_memory.h"
#include "shim/session/sessions.h"
#include "shim/telemetry/memory_told.h"

namespace lms::entry {
namespace {

using device::driver;
using session::Buffer;
using session::Session;

// The address ranges of the driver are ours by construction; `buffer` is what the program was given.
std::optional<Buffer> find(CUdeviceptr pointer) {
    Session* session = session::allocator_of(pointer);
    const auto buffer = session ? session->buffer_at(pointer) : std::nullopt;
    return buffer && pointer - buffer->address < buffer->bytes ? buffer : std::nullopt;
}

// What the driver is asked about where find() finds nothing: between our buffers it has mappings and
// reservations that the program knows nothing of, and is to answer as for any address that nothing has.
CUdeviceptr unknown_or_its_own(CUdeviceptr pointer) {
    constexpr CUdeviceptr kNothing = 1;
    return session::allocator_of(pointer) ? kNothing : pointer;
}

unsigned in_32_bits(std::size_t bytes) {
    return static_cast<unsigned>(std::min<std::size_t>(bytes, UINT32_MAX));
}

template <typename T>
CUresult answer(void* data, T value) {
    *static_cast<T*>(data) = value;
    return CUDA_SUCCESS;
}

// Where no context is current, the driver tells all that is not of that one: Open MPI's threads learn a
// buffer's context so.
CUresult refusal_of(CUpointer_attribute which) {
    const bool of_current =
        which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER || which == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
    const CUresult error = refusal();
    return error == CUDA_ERROR_INVALID_CONTEXT && !of_current ? CUDA_SUCCESS : error;
}

// One attribute of managed memory as cuMemAlloc's memory has it. What is not listed, and what does not depend
// on where the bytes are, the driver answers.
CUresult attribute(void* data, CUpointer_attribute which, CUdeviceptr pointer, const Buffer& buffer) {
    switch (which) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return answer<unsigned int>(data, CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            return answer<CUdeviceptr>(data, pointer);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            return CUDA_ERROR_INVALID_VALUE;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return answer<unsigned int>(data, 0);
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return answer<unsigned int>(data, 1);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return answer<CUdeviceptr>(data, buffer.address);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return answer<std::size_t>(data, buffer.bytes);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return answer<int>(data, session::session_at(pointer)->device());
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: {
            // The driver counts from 1, so these are never its own; libraries key what they register by them.
            const auto device = static_cast<unsigned long long>(session::session_at(pointer)->device());
            return answer<unsigned long long>(data, 1ull << 62 | device << 48 | buffer.id);
        }
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return answer<CUdeviceptr>(data, buffer.address);
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return answer<std::size_t>(data, buffer.bytes);
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return answer<CUmemAccess_flags>(data, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return answer<CUmemoryPool>(data, session::pool_of(buffer.address));
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return answer<CUcontext>(data, buffer.owner);
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
            return answer<unsigned int>(data, 0);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return answer<std::uint64_t>(data, 0);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: {
            // Once it is asked for the buffer stays on the GPU; of what is out it was not.
            const CUresult status = driver().cuPointerGetAttribute(data, which, pointer);
            return status == CUDA_SUCCESS ? status : answer<unsigned int>(data, 0);
        }
        default:
            return driver().cuPointerGetAttribute(data, which, pointer);
    }
}

// The same of memory that the program has mapped itself, for work of the current context.
CUresult attribute(void* data, CUpointer_attribute which, CUdeviceptr pointer, const session::ViewAt& at) {
    CUdevice current = CU_DEVICE_INVALID;
    driver().cuCtxGetDevice(&current);
    const CUmemAccess_flags access = at.view.access_of(current);
    switch (which) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return answer<CUcontext>(data, nullptr);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return answer<unsigned int>(data, CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
            return answer<CUdeviceptr>(data, pointer);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            return CUDA_ERROR_INVALID_VALUE;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
            return answer<unsigned int>(data, 0);
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return answer<unsigned int>(data, 1);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return answer<int>(data, at.view.device);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return answer<CUdeviceptr>(data, at.reservation.begin);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return answer<std::size_t>(data, at.reservation.end - at.reservation.begin);
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return answer<CUdeviceptr>(data, at.view.address);
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return answer<std::size_t>(data, at.view.bytes);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            // Beside those of allocated memory.
            return answer<unsigned long long>(data, 1ull << 61 | at.view.id);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return answer<std::uint64_t>(data, at.properties.requestedHandleTypes);
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return answer<CUmemAccess_flags>(data, access);
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return answer<CUmemoryPool>(data, nullptr);
        default:
            return driver().cuPointerGetAttribute(data, which, pointer);
    }
}

// Of managed memory, either kind; `where` is what the driver is asked about.
template <typename Memory>
CUresult attributes(unsigned int count, CUpointer_attribute* which, void** data, CUdeviceptr where,
                    const Memory& memory) {
    const CUresult status = driver().cuPointerGetAttributes(count, which, data, where);
    if (status != CUDA_SUCCESS) return status;
    for (unsigned int i = 0; i < count; ++i) {
        if (refusal_of(which[i]) != CUDA_SUCCESS) continue;
        // The plural form gives a null pointer where the singular one refuses.
        const bool is_pointer =
            which[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER || which[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
        if (attribute(data[i], which[i], where, memory) != CUDA_SUCCESS && is_pointer)
            *static_cast<void**>(data[i]) = nullptr;
    }
    return status;
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using device::driver;

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    return entry::guarded([&]() -> CUresult {
        const CUresult status = driver().cuMemGetInfo_v2(free, total);
        if (status != CUDA_SUCCESS) return status;
        session::Session* session = session::current_session();
        device::MemoryInfo info{};
        if (!session || session->visible_memory(info) != CUDA_SUCCESS) return status;
        // The driver lets a program ask for one alone.
        if (free) *free = info.free_bytes;
        if (total) *total = info.total_bytes;
        telemetry::note_memory_told(info.total_bytes, info.free_bytes);
        return status;
    });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
    return entry::guarded([&]() -> CUresult {
        const CUresult status = driver().cuDeviceTotalMem_v2(bytes, dev);
        if (status != CUDA_SUCCESS || !bytes) return status;
        *bytes = executor::visible_total(*bytes, settings());
        telemetry::note_memory_told(*bytes, 0);
        return status;
    });
}

// The forms of before CUDA 3.2 count in 32 bits.
CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
    std::size_t all_free = 0;
    std::size_t all = 0;
    const CUresult status = cuMemGetInfo_v2(&all_free, &all);
    if (status != CUDA_SUCCESS) return status;
    if (free) *free = entry::in_32_bits(all_free);
    if (total) *total = entry::in_32_bits(all);
    return status;
}

CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
    std::size_t all = 0;
    const CUresult status = cuDeviceTotalMem_v2(&all, dev);
    if (status == CUDA_SUCCESS && bytes) *bytes = entry::in_32_bits(all);
    return status;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
    return entry::guarded([&]() -> CUresult {
        const auto view = session::managed_view_at(dptr);
        const auto buffer = entry::find(dptr);
        if (!view && !buffer)
            return driver().cuMemGetAddressRange_v2(pbase, psize, entry::unknown_or_its_own(dptr));
        if (const CUresult error = entry::refusal(); error != CUDA_SUCCESS) return error;
        if (pbase) *pbase = view ? view->view.address : buffer->address;
        if (psize) *psize = view ? view->view.bytes : buffer->bytes;
        return CUDA_SUCCESS;
    });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    return entry::guarded([&]() -> CUresult {
        const auto view = data ? session::managed_view_at(ptr) : std::nullopt;
        const auto buffer = data ? entry::find(ptr) : std::nullopt;
        if (!view && !buffer)
            return driver().cuPointerGetAttribute(data, attribute, entry::unknown_or_its_own(ptr));
        if (const CUresult error = entry::refusal_of(attribute); error != CUDA_SUCCESS) return error;
        return view ? entry::attribute(data, attribute, ptr, *view)
                    : entry::attribute(data, attribute, ptr, *buffer);
    });
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
    return entry::guarded([&]() -> CUresult {
        if (const auto view = session::managed_view_at(ptr))
            return entry::attributes(numAttributes, attributes, data, ptr, *view);
        if (const auto buffer = entry::find(ptr))
            return entry::attributes(numAttributes, attributes, data, ptr, *buffer);
        return driver().cuPointerGetAttributes(numAttributes, attributes, data,
                                               entry::unknown_or_its_own(ptr));
    });
}

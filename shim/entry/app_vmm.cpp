// The program's own virtual memory management. Its handles of ordinary device memory are managed
// (session/program_memory.h); what is mapped by others, and where, is noted beside. What cuMemAlloc gave is
// not the program's to map or unmap: calls answer for it as they do for memory of the driver's.
#include <unistd.h>

#include <vector>

#include "shim/access/exempt.h"
#include "shim/access/pointer_tables.h"
#include "shim/device/driver_table.h"
#include "shim/entry/forms.h"
#include "shim/entry/guard.h"
#include "shim/program/capture.h"
#include "shim/session/program_memory.h"
#include "shim/session/submit.h"
#include "shim/util/mutex.h"

namespace lms::entry {
namespace {

using device::driver;
using program::program_addresses;

// What the driver says of any such call here and now: while work is captured it forbids them some threads
// (and ends a capture that forbade it), and after a fault all. Of a reservation that there is not it knows
// nothing.
CUresult allowed() {
    const CUresult status = driver().cuMemAddressFree(0, 0);
    return status == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : status;
}

template <typename Call>
CUresult if_allowed(Call&& call) {
    const CUresult error = allowed();
    return error == CUDA_SUCCESS ? call() : error;
}

// The same of calls that only ask, which a capture does not mind.
template <typename Call>
CUresult if_asking_is_allowed(Call&& call) {
    CUmemAllocationProp none{};
    const CUresult error = driver().cuMemGetAllocationPropertiesFromHandle(&none, 0);
    return error == CUDA_ERROR_INVALID_VALUE ? call() : error;
}

template <typename Call>
CUresult unless_allocated(CUdeviceptr address, Call&& call) {
    return session::allocator_of(address) ? CUDA_ERROR_INVALID_VALUE : session::call_with_oom_retry(call);
}

// What the driver says of a location.
CUresult check(const CUmemLocation& location) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location;
    std::size_t unit = 0;
    return driver().cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

CUmemAccess_flags access_from(const CUmemLocation& location, const program::View& view) {
    const bool is_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return is_device ? view.access_of(location.id) : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// Memory of the driver's, mapped beside the program's. Addresses of managed memory that lie in it go with it.
void note_mapped(const program::View& view) {
    {
        const util::Lock lock(program_addresses().mutex);
        program_addresses().book.add(view);
    }
    access::note_handle_mapped(view.drivers, view.offset, view.address, view.bytes);
}

// What the host wrote by that mapping is known by the handle from now on, while it lives.
void note_gone(const program::View& view, bool lives) {
    const CUmemGenericAllocationHandle handle = view.handle != 0 ? view.handle : view.drivers;
    access::note_handle_unmapped(handle, view.offset, view.address, view.bytes);
    if (!lives) access::note_handle_given(handle);
}

void note_unmapped(CUdeviceptr address, std::size_t bytes) {
    std::vector<program::View> views;
    {
        const util::Lock lock(program_addresses().mutex);
        views = program_addresses().book.in(address, bytes);
        for (const program::View& view : views) program_addresses().book.remove(view.address);
    }
    for (const program::View& view : views) note_gone(view, true);
}

// Maps a handle of the program's. Where addresses of managed memory lie in it goes with it.
CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
    engine::Address before = 0;
    const CUresult status = session::map_handle(address, bytes, offset, handle, flags, before);
    if (status != CUDA_SUCCESS) return status;
    if (before != 0) {
        access::note_copy({address, bytes}, {before, bytes});
    } else {
        access::note_handle_mapped(handle, offset, address, bytes);
    }
    return status;
}

CUresult map_array(CUarrayMapInfo* list, unsigned int count,
                   util::FunctionRef<CUresult(CUarrayMapInfo*)> call) {
    return guarded([&] {
        if (session::sessions().empty()) return call(list);
        // Tile pools are the driver's, so none of ours is one; the driver knows no handle 0 either.
        std::vector<CUarrayMapInfo> infos(list, list + (list ? count : 0));
        for (CUarrayMapInfo& info : infos) {
            if (session::is_program_handle(info.memHandle.memHandle)) info.memHandle.memHandle = 0;
        }
        return session::call_with_oom_retry([&] { return call(list ? infos.data() : list); });
    });
}

// Binds memory of `handle` to something that others reach, by `call(the driver's handle)`; `undo(its
// device)`.
template <typename Call, typename Undo>
CUresult bind(CUmemGenericAllocationHandle handle, Call&& call, Undo&& undo) {
    return guarded([&] {
        if (!session::is_program_handle(handle))
            return session::call_with_oom_retry([&] { return call(handle); });
        CUmemAllocationProp properties{};
        session::properties_of(handle, properties);
        return session::with_drivers_handle(
            handle, call, [&](CUmemGenericAllocationHandle) { undo(properties.location.id); });
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using namespace lms::entry;
using lms::device::driver;

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
    return guarded_taking([&] {
        const CUresult status = driver().cuMemAddressReserve(ptr, size, alignment, addr, flags);
        if (status != CUDA_SUCCESS) return status;
        session::widen_bounds(*ptr, *ptr + size);
        const util::Lock lock(program_addresses().mutex);
        program_addresses().book.reserve(*ptr, size, addr);
        return status;
    });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    return guarded([&]() -> CUresult {
        // Evicted, it may have no mapping that the driver would see.
        if (session::has_program_memory(ptr, size))
            return if_allowed([] { return CUDA_ERROR_INVALID_VALUE; });
        // Before others may be given them.
        const std::uint64_t reserved = [&] {
            const util::Lock lock(program_addresses().mutex);
            return program_addresses().book.unreserve(ptr);
        }();
        const CUresult status = driver().cuMemAddressFree(ptr, size);
        if (status == CUDA_SUCCESS || reserved == 0) return status;
        const util::Lock lock(program_addresses().mutex);
        program_addresses().book.reserve_again(ptr, reserved);
        return status;
    });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
    return guarded_taking([&]() -> CUresult {
        session::program_allocates();
        const auto pass = [&] { return driver().cuMemCreate(handle, size, prop, flags); };
        session::Session* const session = handle && prop && flags == 0 && !access::called_by_exempt()
                                              ? session::session_for(*prop, size)
                                              : nullptr;
        if (!session) {
            const bool on_gpu = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
            const CUresult status =
                on_gpu ? session::call_with_oom_retry(pass) : session::pin_with_retry(pass);
            if (status == CUDA_SUCCESS && handle) access::note_handle_given(*handle);
            return status;
        }
        return if_allowed([&] {
            const CUresult status = session::try_properties(*session, *prop);
            return status == CUDA_SUCCESS ? session::create_handle(*session, size, *prop, *handle) : status;
        });
    });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return guarded([&] {
        if (!session::is_program_handle(handle)) return driver().cuMemRelease(handle);
        return if_allowed([&] {
            bool gone = false;
            const CUresult status = session::release_handle(handle, gone);
            if (gone) access::note_handle_given(handle);
            return status;
        });
    });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    return guarded_taking([&]() -> CUresult {
        if (session::is_program_handle(handle))
            return if_allowed([&] { return map(ptr, size, offset, handle, flags); });
        if (session::has_program_memory(ptr, size))
            return if_allowed([] { return CUDA_ERROR_INVALID_VALUE; });
        const CUresult status =
            unless_allocated(ptr, [&] { return driver().cuMemMap(ptr, size, offset, handle, flags); });
        if (status == CUDA_SUCCESS)
            note_mapped({.address = ptr, .bytes = size, .drivers = handle, .offset = offset});
        return status;
    });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    return guarded([&] {
        if (session::has_program_memory(ptr, size)) {
            return if_allowed([&] {
                return session::unmap_range(ptr, size,
                                            [](const program::View& view, bool known_by, bool lives) {
                                                if (!known_by) access::note_freed(view.address, view.bytes);
                                                note_gone(view, lives);
                                            });
            });
        }
        const CUresult status = unless_allocated(ptr, [&] { return driver().cuMemUnmap(ptr, size); });
        if (status == CUDA_SUCCESS) note_unmapped(ptr, size);
        return status;
    });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
    return guarded([&] {
        if (session::has_program_memory(ptr, size) && desc && count > 0)
            return if_allowed([&] { return session::set_access(ptr, size, {desc, count}); });
        return unless_allocated(ptr, [&] { return driver().cuMemSetAccess(ptr, size, desc, count); });
    });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
    return guarded([&] {
        const auto found = flags && location ? session::managed_view_at(ptr) : std::nullopt;
        if (!found)
            return unless_allocated(ptr, [&] { return driver().cuMemGetAccess(flags, location, ptr); });
        return if_asking_is_allowed([&] {
            const CUresult status = check(*location);
            if (status == CUDA_SUCCESS) *flags = access_from(*location, found->view);
            return status;
        });
    });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
    return guarded([&]() -> CUresult {
        const auto address = reinterpret_cast<CUdeviceptr>(addr);
        if (const CUresult error = allowed(); error != CUDA_SUCCESS) return error;
        const auto ours = handle ? session::retain_handle(address) : std::nullopt;
        if (!ours)
            return unless_allocated(address,
                                    [&] { return driver().cuMemRetainAllocationHandle(handle, addr); });
        *handle = *ours;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
    return guarded([&] {
        if (!prop || !session::is_program_handle(handle))
            return driver().cuMemGetAllocationPropertiesFromHandle(prop, handle);
        return if_asking_is_allowed([&] { return session::properties_of(handle, *prop); });
    });
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
    return guarded([&] {
        const auto call = [&](CUmemGenericAllocationHandle real) {
            return driver().cuMemExportToShareableHandle(shareableHandle, real, handleType, flags);
        };
        if (!session::is_program_handle(handle)) return call(handle);
        return if_allowed([&] {
            return session::with_drivers_handle(handle, call, [&](CUmemGenericAllocationHandle) {
                if (handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                    ::close(*static_cast<int*>(shareableHandle));
            });
        });
    });
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) {
    return bind(
        memHandle,
        [&](CUmemGenericAllocationHandle real) {
            return driver().cuMulticastBindMem(mcHandle, mcOffset, real, memOffset, size, flags);
        },
        [&](CUdevice device) { driver().cuMulticastUnbind(mcHandle, device, mcOffset, size); });
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                               CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                               unsigned long long flags) {
    return bind(
        memHandle,
        [&](CUmemGenericAllocationHandle real) {
            return driver().cuMulticastBindMem_v2(mcHandle, dev, mcOffset, real, memOffset, size, flags);
        },
        [&](CUdevice) { driver().cuMulticastUnbind(mcHandle, dev, mcOffset, size); });
}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset,
                                  CUmemGenericAllocationHandle memHandle, cuuint64_t memOffset,
                                  cuuint64_t size, unsigned long long flags) {
    return bind(
        memHandle,
        [&](CUmemGenericAllocationHandle real) {
            return driver().cuLogicalEndpointBindMem(leId, dev, offset, real, memOffset, size, flags);
        },
        [&](CUdevice) {
            using lms::device::typed;
            typed<decltype(::cuLogicalEndpointUnbind)>(driver().cuLogicalEndpointUnbind)(leId, dev, offset,
                                                                                         size);
        });
}

LMS_FORMS(cuMemMapArrayAsync, _ptsz, (CUarrayMapInfo * mapInfoList, unsigned int count, CUstream hStream),
          return map_array(mapInfoList, count,
                           [&](CUarrayMapInfo* list) { return Form::real(list, count, hStream); });)

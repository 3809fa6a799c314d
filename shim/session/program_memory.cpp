#include "shim/session/program_memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "shim/device/driver_table.h"
#include "shim/device/patience.h"
#include "shim/device/scope.h"
#include "shim/program/capture.h"
#include "shim/program/contexts.h"
#include "shim/program/green_contexts.h"
#include "shim/program/handles.h"
#include "shim/session/submit.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"
#include "shim/util/log.h"
#include "shim/util/mutex.h"

namespace lms::session {

using device::driver;
using engine::Address;
using HandleValue = CUmemGenericAllocationHandle;

namespace {

struct Handle {
    Session* session = nullptr;
    Address home = 0;
    std::uint64_t bytes = 0;
    CUmemAllocationProp properties{};
    unsigned references = 1;  // by cuMemCreate and cuMemRetainAllocationHandle
    unsigned views = 0;
    // The mapping that what the host wrote into it is known by: the last one. 0: there is none, or that is
    // gone.
    Address known_at = 0;
    HandleValue real = 0;  // the driver's, whose the memory is; 0: it is managed

    bool is_managed() const { return real == 0; }
    bool lives() const { return references > 0 || views > 0; }
};

// No handle of the driver's is like these, as far as anybody knows: they are small numbers or pointers.
constexpr HandleValue kFirst = HandleValue{0x6c6d73} << 40;

struct HandleTable : program::Handles<HandleValue, Handle> {
    HandleValue next LMS_GUARDED_BY(mutex) = kFirst;
    std::uint64_t views LMS_GUARDED_BY(mutex) = 0;  // ever
    std::vector<CUmemAllocationProp> tried LMS_GUARDED_BY(mutex);
};

HandleTable& handles() {
    return program::only<HandleTable>();
}

// While it lives, nobody else changes the handle.
struct Busy : HandleTable::Alone {
    explicit Busy(HandleValue value) : Alone(handles(), value) {}
    ~Busy() {
        if (*this && !get()->lives()) forget();
    }
};

// The same of all handles of some mappings.
class AllBusy {
  public:
    explicit AllBusy(const std::vector<program::View>& views) {
        std::set<HandleValue> values;
        for (const program::View& view : views) values.insert(view.handle);
        // In one order, or two threads would wait for each other.
        for (const HandleValue value : values) all_.try_emplace(value, value);
    }
    // Null if there is none.
    Handle* find(HandleValue value) const {
        const auto it = all_.find(value);
        return it == all_.end() ? nullptr : it->second.get();
    }
    bool has(const program::View& view) const { return all_.contains(view.handle); }

  private:
    std::map<HandleValue, Busy> all_;
};

// Its last reference or mapping may be gone, and its memory with it.
void end_if_unused(const Handle& handle) {
    if (!handle.lives() && handle.is_managed()) handle.session->forget(handle.home);
}

bool alike(const CUmemAllocationProp& a, const CUmemAllocationProp& b) {
    return a.requestedHandleTypes == b.requestedHandleTypes && a.location.id == b.location.id &&
           a.allocFlags.gpuDirectRDMACapable == b.allocFlags.gpuDirectRDMACapable;
}

// Device memory that may be shared, or registered with a network card, one day (give_to_driver()).
bool is_ordinary(const CUmemAllocationProp& properties) {
    constexpr unsigned kKnown = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    const auto& flags = properties.allocFlags;
    return properties.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           properties.win32HandleMetaData == nullptr &&
           (static_cast<unsigned>(properties.requestedHandleTypes) & ~kKnown) == 0 &&
           flags.compressionType == CU_MEM_ALLOCATION_COMP_NONE && flags.usage == 0 &&
           std::ranges::all_of(flags.reserved, [](unsigned char byte) { return byte == 0; });
}

// Opened through any context of its GPU's, if there is none yet.
Session* awake_session(CUdevice device) {
    Session* const known = session_of(device);
    if (known && known->awake()) {
        CUcontext own = nullptr;
        driver().cuCtxGetCurrent(&own);
        return may_be_about_to_rest(*known, program::owner_of(own)) ? nullptr : known;
    }
    CUdevice current = CU_DEVICE_INVALID;
    if (driver().cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device) return current_session();
    const CUcontext context = program::another_context(device, nullptr);
    if (!context) return nullptr;
    const device::InContext in_context(context);
    return in_context.status() == CUDA_SUCCESS ? current_session() : nullptr;
}

std::vector<program::View> views_in(Address address, std::uint64_t bytes) {
    const util::SharedLock lock(program::program_addresses().mutex);
    return program::program_addresses().book.in(address, bytes);
}

std::vector<program::View> whole_views(Address address, std::uint64_t bytes) {
    const util::SharedLock lock(program::program_addresses().mutex);
    return program::program_addresses().book.whole(address, bytes);
}

// The mappings that a range consists of, with their handles busy; none, if others lie there or nothing.
class BusyRange {
  public:
    BusyRange(Address address, std::uint64_t bytes) {
        do {
            busy_.emplace(whole_views(address, bytes));
            views_ = whole_views(address, bytes);
            // Another thread may have mapped something else there.
        } while (!std::ranges::all_of(views_, [&](const program::View& each) { return busy_->has(each); }));
    }
    const std::vector<program::View>& views() const { return views_; }
    Handle* handle_of(const program::View& view) const { return busy_->find(view.handle); }

  private:
    std::optional<AllBusy> busy_;
    std::vector<program::View> views_;
};

// Enters a view unless something else is there.
bool enter(const program::View& view) {
    const util::Lock lock(program::program_addresses().mutex);
    program::AddressBook& book = program::program_addresses().book;
    if (!book.reservation_of(view.address, view.bytes) || !book.in(view.address, view.bytes).empty())
        return false;
    book.add(view);
    return true;
}

void take_out(Address address) {
    const util::Lock lock(program::program_addresses().mutex);
    program::program_addresses().book.remove(address);
}

}  // namespace

Session* session_for(const CUmemAllocationProp& properties, std::uint64_t bytes) {
    if (bytes == 0 || !is_ordinary(properties) || !manages(bytes)) return nullptr;
    Session* const session = awake_session(properties.location.id);
    return session && bytes % session->granularity() == 0 ? session : nullptr;
}

CUresult try_properties(const Session& session, const CUmemAllocationProp& properties) {
    HandleTable& all = handles();
    const auto known = [&](const CUmemAllocationProp& each) { return alike(each, properties); };
    {
        const util::Lock lock(all.mutex);
        if (std::ranges::any_of(all.tried, known)) return CUDA_SUCCESS;
    }
    HandleValue handle = 0;
    const CUresult status = call_with_oom_retry(
        [&] { return driver().cuMemCreate(&handle, session.granularity(), &properties, 0); });
    if (status != CUDA_SUCCESS) return status;
    driver().cuMemRelease(handle);
    const util::Lock lock(all.mutex);
    all.tried.push_back(properties);
    return CUDA_SUCCESS;
}

CUresult create_handle(Session& session, std::uint64_t bytes, const CUmemAllocationProp& properties,
                       HandleValue& handle) {
    Address home = 0;
    const CUresult status = session.create(bytes, home, !program::capturing_anywhere());
    if (status != CUDA_SUCCESS) return status;
    const util::Lock lock(handles().mutex);
    handle = handles().next++;
    handles().enter(handle, {&session, home, bytes, properties});
    return CUDA_SUCCESS;
}

bool is_program_handle(HandleValue handle) {
    return handle >> 40 == kFirst >> 40;
}

CUresult release_handle(HandleValue value, bool& gone) {
    const Busy handle(value);
    if (!handle || handle->references == 0) return CUDA_ERROR_INVALID_VALUE;
    if (--handle->references > 0) return CUDA_SUCCESS;
    gone = !handle->lives();
    if (!handle->is_managed()) return driver().cuMemRelease(handle->real);
    end_if_unused(*handle);
    return CUDA_SUCCESS;
}

CUresult properties_of(HandleValue value, CUmemAllocationProp& properties) {
    const Busy handle(value);
    if (!handle || handle->references == 0) return CUDA_ERROR_INVALID_VALUE;
    properties = handle->properties;
    return CUDA_SUCCESS;
}

namespace {

// Whose memory some work uses, so that it cannot become the driver's yet.
struct Used {
    Session* session = nullptr;
    Address home = 0;
};

// Calls `try_once(used)` until it answers. Others may change the handle while its work is waited for.
template <typename TryOnce>
CUresult once_unused(TryOnce&& try_once) {
    for (const auto deadline = util::Clock::now() + bounds::kHandOver;;) {
        Used used;
        if (const std::optional<CUresult> status = try_once(used)) return *status;
        if (!used.session->await_unused(used.home) || util::Clock::now() > deadline)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// With `handle` busy, and managed.
std::optional<CUresult> hand_over(HandleValue value, Handle& handle, Used& used, const WithHandle& call,
                                  const std::function<void(HandleValue)>& undo) {
    if (handle.session->is_used(handle.home)) {
        used = {handle.session, handle.home};
        return std::nullopt;
    }
    HandleValue real = 0;
    CUresult status =
        call_with_oom_retry([&] { return driver().cuMemCreate(&real, handle.bytes, &handle.properties, 0); });
    if (status != CUDA_SUCCESS) return status;
    std::optional<CUresult> handed = call(real);
    if (handed == CUDA_SUCCESS) {
        handed = handle.session->hand_over(handle.home, real);
        if (handed != CUDA_SUCCESS) undo(real);
    }
    if (handed != CUDA_SUCCESS) {
        driver().cuMemRelease(real);
        if (!handed) used = {handle.session, handle.home};
        return handed;
    }
    handle.real = real;
    // Its mappings keep it.
    if (handle.references == 0) driver().cuMemRelease(real);
    const util::Lock lock(program::program_addresses().mutex);
    program::program_addresses().book.each([&](program::View& view) {
        if (view.handle == value) view.home = 0;
    });
    return CUDA_SUCCESS;
}

CUresult map_drivers(const program::View& view, const Handle& handle, unsigned long long flags) {
    const CUresult status = call_with_oom_retry(
        [&] { return driver().cuMemMap(view.address, view.bytes, view.offset, handle.real, flags); });
    if (status == CUDA_SUCCESS) enter(view);
    return status;
}

// What no driver is known to take. One that does has its way.
std::optional<CUresult> map_part(const program::View& view, Handle& handle, Used& used,
                                 unsigned long long flags) {
    const std::optional<CUresult> status = hand_over(
        view.handle, handle, used,
        [&](HandleValue real) {
            return driver().cuMemMap(view.address, view.bytes, view.offset, real, flags);
        },
        [&](HandleValue) { driver().cuMemUnmap(view.address, view.bytes); });
    if (status == CUDA_SUCCESS) enter(view);
    return status;
}

CUresult map_managed(program::View view, const Handle& handle) {
    view.home = handle.home;
    {
        const util::Lock lock(handles().mutex);
        view.id = ++handles().views;
    }
    if (!enter(view)) return CUDA_ERROR_INVALID_VALUE;
    program::managed_views = true;
    const CUresult status = handle.session->map(handle.home, view.address);
    if (status != CUDA_SUCCESS) take_out(view.address);
    return status;
}

std::optional<CUresult> try_to_map(Address address, std::uint64_t bytes, std::uint64_t offset,
                                   HandleValue value, unsigned long long flags, Address& before, Used& used) {
    const Busy handle(value);
    if (!handle || handle->references == 0) return CUDA_ERROR_INVALID_VALUE;
    // Evicted, what is there may have no mapping that the driver would see.
    if (has_program_memory(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    program::View view{address, bytes, value, handle->session->device()};
    view.offset = offset;
    const bool whole =
        offset == 0 && bytes == handle->bytes && flags == 0 && address % handle->session->granularity() == 0;
    const std::optional<CUresult> status = !handle->is_managed() ? map_drivers(view, *handle, flags)
                                           : whole               ? map_managed(view, *handle)
                                                                 : map_part(view, *handle, used, flags);
    if (status != CUDA_SUCCESS) return status;
    ++handle->views;
    before = handle->known_at;
    handle->known_at = address;
    return CUDA_SUCCESS;
}

}  // namespace

CUresult map_handle(Address address, std::uint64_t bytes, std::uint64_t offset, HandleValue value,
                    unsigned long long flags, Address& before) {
    return once_unused(
        [&](Used& used) { return try_to_map(address, bytes, offset, value, flags, before, used); });
}

CUresult with_drivers_handle(HandleValue value, const WithHandle& call,
                             const std::function<void(HandleValue)>& undo) {
    const auto retried = [&](HandleValue real) { return call_with_oom_retry([&] { return call(real); }); };
    return once_unused([&](Used& used) -> std::optional<CUresult> {
        const Busy handle(value);
        if (!handle || handle->references == 0) return CUDA_ERROR_INVALID_VALUE;
        return handle->is_managed() ? hand_over(value, *handle, used, retried, undo) : retried(handle->real);
    });
}

CUresult give_to_driver(Address address, std::uint64_t bytes) {
    // A capture forbids what it takes, and not what the program asks for.
    const device::RelaxedCapture relaxed;
    for (const program::View& view : views_in(address, bytes)) {
        const HandleValue value = view.handle;
        const CUresult status = once_unused([&](Used& used) -> std::optional<CUresult> {
            const Busy handle(value);
            if (!handle || !handle->is_managed()) return CUDA_SUCCESS;
            return hand_over(
                value, *handle, used, [](HandleValue) { return CUDA_SUCCESS; }, [](HandleValue) {});
        });
        if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
}

bool within_reach(Address address, std::uint64_t bytes) {
    if (!program::managed_views.load(std::memory_order_relaxed)) return true;
    CUdevice current = CU_DEVICE_INVALID;
    driver().cuCtxGetDevice(&current);
    return std::ranges::all_of(views_in(address, bytes), [&](const program::View& view) {
        return !view.is_managed() || view.access_of(current) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    });
}

bool has_program_memory(Address address, std::uint64_t bytes) {
    return program::managed_views.load(std::memory_order_relaxed) &&
           std::ranges::any_of(views_in(address, bytes),
                               [](const program::View& view) { return view.handle != 0; });
}

CUresult unmap_range(Address address, std::uint64_t bytes, const ViewGone& gone) {
    const BusyRange range(address, bytes);
    if (range.views().empty()) return CUDA_ERROR_INVALID_VALUE;
    bool begun = false;
    for (const program::View& view : range.views()) {
        Handle* const handle = range.handle_of(view);
        // The driver takes away all of a range or nothing: what follows the first is insisted on.
        const CUresult status = device::patiently(
            [&] {
                return view.is_managed() ? handle->session->unmap(view.home, view.address)
                                         : driver().cuMemUnmap(view.address, view.bytes);
            },
            [&](CUresult answer) { return !begun || answer == CUDA_SUCCESS || device::is_sticky(answer); });
        if (status != CUDA_SUCCESS) return status;
        begun = true;
        take_out(view.address);
        if (!handle) {
            gone(view, true, true);
            continue;
        }
        --handle->views;
        const bool known_by = handle->known_at == view.address;
        if (known_by) handle->known_at = 0;
        gone(view, known_by, handle->lives());
        end_if_unused(*handle);
    }
    return CUDA_SUCCESS;
}

namespace {

// What the driver says of such access to memory that is on the GPU, wherever that to be reached is.
CUresult try_access(const program::View& view, std::span<const CUmemAccessDesc> access) {
    int devices = 0;
    driver().cuDeviceGetCount(&devices);
    const auto is_plain = [&](const CUmemAccessDesc& each) {
        return each.location.type == CU_MEM_LOCATION_TYPE_DEVICE && each.location.id >= 0 &&
               each.location.id < devices &&
               (each.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || each.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                each.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    };
    if (std::ranges::all_of(access, is_plain)) return CUDA_SUCCESS;
    const std::uint64_t bytes = session_of(view.device)->granularity();
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, view.device};
    HandleValue handle = 0;
    CUdeviceptr address = 0;
    CUresult status =
        call_with_oom_retry([&] { return driver().cuMemCreate(&handle, bytes, &properties, 0); });
    if (status != CUDA_SUCCESS) return status;
    status = driver().cuMemAddressReserve(&address, bytes, bytes, 0, 0);
    if (status == CUDA_SUCCESS) {
        status = driver().cuMemMap(address, bytes, 0, handle, 0);
        if (status == CUDA_SUCCESS) {
            status = driver().cuMemSetAccess(address, bytes, access.data(), access.size());
            driver().cuMemUnmap(address, bytes);
        }
        driver().cuMemAddressFree(address, bytes);
    }
    driver().cuMemRelease(handle);
    return status;
}

void note_access(const program::View& of, std::span<const CUmemAccessDesc> access) {
    for (const CUmemAccessDesc& each : access) {
        if (each.location.type == CU_MEM_LOCATION_TYPE_DEVICE && each.location.id != of.device &&
            each.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            program::peer_admitted(of.device, each.location.id);
    }
    const util::Lock lock(program::program_addresses().mutex);
    program::View& view = program::program_addresses().book.at(of.address);
    for (const CUmemAccessDesc& each : access) program::set(view.access, each);
}

}  // namespace

CUresult set_access(Address address, std::uint64_t bytes, std::span<const CUmemAccessDesc> access) {
    const BusyRange range(address, bytes);
    if (range.views().empty()) return CUDA_ERROR_INVALID_VALUE;
    for (const program::View& view : range.views()) {
        if (!view.is_managed()) continue;
        if (const CUresult status = try_access(view, access); status != CUDA_SUCCESS) return status;
    }
    for (const program::View& view : range.views()) {
        CUresult status = CUDA_SUCCESS;
        if (view.is_managed()) {
            // Before anybody can reach it there.
            note_access(view, access);
            status = range.handle_of(view)->session->set_access(view.home, view.address, access);
            if (status != CUDA_SUCCESS) {
                const util::Lock lock(program::program_addresses().mutex);
                program::program_addresses().book.at(view.address).access = view.access;
            }
        } else {
            status = driver().cuMemSetAccess(view.address, view.bytes, access.data(), access.size());
        }
        if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
}

std::optional<HandleValue> retain_handle(Address address) {
    if (!program::managed_views.load(std::memory_order_relaxed)) return std::nullopt;
    HandleValue value = 0;
    {
        const util::SharedLock lock(program::program_addresses().mutex);
        const program::View* const view = program::program_addresses().book.find(address);
        if (!view || view->handle == 0) return std::nullopt;
        value = view->handle;
    }
    const Busy handle(value);
    if (!handle) return std::nullopt;
    // Of the driver's own the program holds one, however many references it has here.
    if (!handle->is_managed() && handle->references == 0) {
        HandleValue real = 0;
        if (driver().cuMemRetainAllocationHandle(&real, reinterpret_cast<void*>(address)) != CUDA_SUCCESS)
            return std::nullopt;
    }
    ++handle->references;
    return value;
}

std::optional<ViewAt> managed_view_at(Address address) {
    if (!program::managed_views.load(std::memory_order_relaxed)) return std::nullopt;
    ViewAt found{};
    {
        const util::SharedLock lock(program::program_addresses().mutex);
        const program::View* const view = program::program_addresses().book.find(address);
        if (!view || !view->is_managed()) return std::nullopt;
        found.view = *view;
        found.reservation = *program::program_addresses().book.reservation_of(address);
    }
    const util::Lock lock(handles().mutex);
    if (const Handle* const handle = handles().find(found.view.handle)) found.properties = handle->properties;
    return found;
}

}  // namespace lms::session

#include "tools/simcuda/driver/vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "tools/simcuda/driver/address_space.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/report.h"

namespace simcuda::driver {
namespace {

std::atomic<std::uint64_t> handles_alive{0};

struct State {
    // Held over each call's checks and effects, so that a mapping changes as a whole.
    std::mutex mutex;
    std::map<CUdeviceptr, std::uint64_t> reservations;  // address -> bytes
    std::unordered_map<CUmemGenericAllocationHandle, std::shared_ptr<VmmAllocation>> handles;
    CUmemGenericAllocationHandle next_handle = 1;
    std::uint64_t mappings = 0;
    std::uint64_t set_access_calls = 0;
    std::set<CUdeviceptr> unmapped;  // ever, and not mapped since, of a perverse driver
};

State& state() {
    static State& state = *new State;
    return state;
}

bool on_host(const CUmemLocation& location) {
    return location.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

std::shared_ptr<VmmAllocation> checked(CUmemGenericAllocationHandle handle) {
    const auto it = state().handles.find(handle);
    require(it != state().handles.end(), CUDA_ERROR_INVALID_VALUE);
    return it->second;
}

// The reservation that contains all of the range, or null.
const std::pair<const CUdeviceptr, std::uint64_t>* reservation(CUdeviceptr address, std::uint64_t bytes) {
    auto it = state().reservations.upper_bound(address);
    if (it == state().reservations.begin()) return nullptr;
    --it;
    return address + bytes <= it->first + it->second && address + bytes > address ? &*it : nullptr;
}

// The mappings that make up exactly [address, address + bytes), none of them cut.
std::vector<RegionPtr> whole_mappings(CUdeviceptr address, std::uint64_t bytes, const char* call) {
    require(bytes != 0 && address + bytes > address, CUDA_ERROR_INVALID_VALUE);
    auto regions = memory_map().overlapping(address, bytes);
    std::uint64_t at = address;
    for (const RegionPtr& region : regions) {
        if (region->kind != Region::Kind::Mapping || region->address != at) break;
        at = region->end();
    }
    if (regions.empty() || at != address + bytes || regions.back()->end() != at) {
        violation(std::string(call) + ": the range is not made of whole mappings");
        throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
    require(regions.size() == 1 || !is(Perverse::MappingsApart), CUDA_ERROR_INVALID_VALUE);
    return regions;
}

int protection(CUmemAccess_flags flags) {
    switch (flags) {
        case CU_MEM_ACCESS_FLAGS_PROT_READ:
            return PROT_READ;
        case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
            return PROT_READ | PROT_WRITE;
        default:
            return PROT_NONE;
    }
}

// What kernels get: the most any device may do, for they all share one address space here.
CUmemAccess_flags widest(const std::vector<CUmemAccess_flags>& access) {
    CUmemAccess_flags widest = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (CUmemAccess_flags flags : access) widest = std::max(widest, flags);
    return widest;
}

void apply(const Physical& physical, std::uint64_t address, CUmemAccess_flags before,
           CUmemAccess_flags after) {
    if (before == after) return;
    if (after == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        make_inaccessible(address, physical.bytes());
    } else {
        require(physical.map(address, protection(after)), CUDA_ERROR_OUT_OF_MEMORY);
    }
}

// Memory that was accessible once stays so, wherever it is mapped.
bool can_be_accessed(const Region& region) {
    if (!is(Perverse::LessAccessible) || region.device == nullptr) return true;
    const PhysicalPool& pool = region.device->memory;
    region.allocation->was_accessible |= pool.used() <= pool.usable();
    return region.allocation->was_accessible;
}

void check_description(const CUmemAccessDesc& description, const std::vector<RegionPtr>& regions) {
    require(description.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                description.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                description.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            CUDA_ERROR_INVALID_VALUE);
    if (description.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        checked_device(description.location.id);
        return;
    }
    vmm::check_location(description.location);
    for (const RegionPtr& region : regions) require(region->on_host(), CUDA_ERROR_INVALID_VALUE);
}

// Memory that can be shared lies in a file of its own, whose name tells another process where it is located.
constexpr char kFileName[] = "simcuda-memory-";

std::string file_name(const CUmemLocation& location) {
    return kFileName + std::to_string(location.type) + "-" + std::to_string(location.id);
}

CUmemLocation location_of(int file) {
    char target[128] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    require(::readlink(link.c_str(), target, sizeof target - 1) > 0, CUDA_ERROR_INVALID_VALUE);
    int type = 0, id = 0;
    const std::string pattern = std::string("/memfd:") + kFileName + "%d-%d";
    require(std::sscanf(target, pattern.c_str(), &type, &id) == 2, CUDA_ERROR_INVALID_VALUE);
    return {static_cast<CUmemLocationType>(type), id};
}

CUmemGenericAllocationHandle add_handle(const std::shared_ptr<VmmAllocation>& allocation) {
    std::lock_guard lock(state().mutex);
    allocation->handle = state().next_handle++;
    allocation->handle_references = 1;
    state().handles.emplace(allocation->handle, allocation);
    return allocation->handle;
}

}  // namespace

VmmAllocation::VmmAllocation() {
    ++handles_alive;
}
VmmAllocation::~VmmAllocation() {
    --handles_alive;
    physical.reset();
    if (device != nullptr) device->created_bytes -= bytes;
}

namespace vmm {

Alive alive() {
    std::lock_guard lock(state().mutex);
    return {handles_alive, state().mappings, state().reservations.size()};
}

void check_location(const CUmemLocation& location) {
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            checked_device(location.id);
            return;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
            require(location.id == 0, CUDA_ERROR_INVALID_VALUE);
            require(knobs().host_vmm != HostVmm::None, CUDA_ERROR_NOT_SUPPORTED);
            return;
        case CU_MEM_LOCATION_TYPE_HOST:
            require(knobs().host_vmm == HostVmm::All, CUDA_ERROR_NOT_SUPPORTED);
            return;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

CUdeviceptr reserve(std::uint64_t bytes, std::uint64_t alignment, CUdeviceptr hint) {
    const std::uint64_t unit = knobs().granularity;
    require(bytes != 0 && bytes % unit == 0 && (alignment & (alignment - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
    const CUdeviceptr address = address_space().reserve(bytes, std::max(alignment, unit), hint);
    require(address != 0, CUDA_ERROR_OUT_OF_MEMORY);
    std::lock_guard lock(state().mutex);
    state().reservations.emplace(address, bytes);
    return address;
}

void free_reservation(CUdeviceptr address, std::uint64_t bytes) {
    {
        std::lock_guard lock(state().mutex);
        const auto it = state().reservations.find(address);
        require(it != state().reservations.end() && it->second == bytes, CUDA_ERROR_INVALID_VALUE);
        if (!memory_map().overlapping(address, bytes).empty()) {
            violation("cuMemAddressFree of a range with mappings in it");
            throw Failure{CUDA_ERROR_INVALID_VALUE};
        }
        state().reservations.erase(it);
    }
    address_space().release(address, bytes);
}

Range reservation_of(CUdeviceptr address) {
    std::lock_guard lock(state().mutex);
    const auto* found = reservation(address, 1);
    return found == nullptr ? Range{} : Range{found->first, found->second};
}

CUmemGenericAllocationHandle create(std::uint64_t bytes, const CUmemAllocationProp& properties) {
    require(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED && properties.win32HandleMetaData == nullptr,
            CUDA_ERROR_INVALID_VALUE);
    check_location(properties.location);
    if (on_host(properties.location) && is(Perverse::HostCreateCrashes)) ::raise(SIGSEGV);
    const bool shareable = properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const bool anywhere = properties.location.type == CU_MEM_LOCATION_TYPE_HOST;
    require(properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE || (shareable && !anywhere),
            anywhere ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED);
    require(bytes != 0 && bytes % knobs().granularity == 0, CUDA_ERROR_INVALID_VALUE);
    require(knobs().handles == 0 || handles_alive < knobs().handles, CUDA_ERROR_OUT_OF_MEMORY);

    auto allocation = std::make_shared<VmmAllocation>();
    allocation->properties = properties;
    allocation->location = properties.location;
    allocation->bytes = bytes;
    PhysicalPool& pool =
        on_host(properties.location) ? host_pool() : checked_device(properties.location.id).memory;
    if (!on_host(properties.location)) {
        allocation->device = &checked_device(properties.location.id);
        allocation->device->created_bytes += bytes;
    }
    allocation->physical = shareable
                               ? Physical::create_apart(pool, bytes, file_name(properties.location).c_str())
                               : Physical::create(pool, bytes);
    require(allocation->physical != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
    return add_handle(allocation);
}

int export_file(CUmemGenericAllocationHandle handle) {
    std::lock_guard lock(state().mutex);
    const auto allocation = checked(handle);
    require(allocation->properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            CUDA_ERROR_INVALID_VALUE);
    const int file = ::fcntl(allocation->physical->file(), F_DUPFD_CLOEXEC, 0);
    require(file >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    return file;
}

CUmemGenericAllocationHandle import_file(int file) {
    auto allocation = std::make_shared<VmmAllocation>();
    allocation->location = location_of(file);
    check_location(allocation->location);
    allocation->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation->properties.location = allocation->location;
    allocation->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    struct stat status {};
    const int own = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    require(own >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    ::fstat(own, &status);
    allocation->bytes = static_cast<std::uint64_t>(status.st_size);
    allocation->physical = Physical::of_file(own, {{0, allocation->bytes}});
    return add_handle(allocation);
}

void release(CUmemGenericAllocationHandle handle) {
    std::shared_ptr<VmmAllocation> last;  // freed after the lock
    std::lock_guard lock(state().mutex);
    auto allocation = checked(handle);
    if (--allocation->handle_references != 0) return;
    state().handles.erase(handle);
    last = std::move(allocation);
}

CUmemGenericAllocationHandle retain(CUdeviceptr address) {
    std::lock_guard lock(state().mutex);
    const RegionPtr region = memory_map().find(address);
    require(region != nullptr && region->kind == Region::Kind::Mapping, CUDA_ERROR_INVALID_VALUE);
    const auto& allocation = region->allocation;
    if (allocation->handle_references++ == 0) state().handles.emplace(allocation->handle, allocation);
    return allocation->handle;
}

CUmemAllocationProp properties(CUmemGenericAllocationHandle handle) {
    std::lock_guard lock(state().mutex);
    return checked(handle)->properties;
}

void map(CUdeviceptr address, std::uint64_t bytes, CUmemGenericAllocationHandle handle) {
    std::lock_guard lock(state().mutex);
    const auto allocation = checked(handle);
    require(bytes == allocation->bytes && address % knobs().granularity == 0, CUDA_ERROR_INVALID_VALUE);
    require(reservation(address, bytes) != nullptr, CUDA_ERROR_INVALID_VALUE);
    if (!memory_map().overlapping(address, bytes).empty()) {
        violation("cuMemMap over an existing mapping");
        throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
    require(knobs().mappings == 0 || state().mappings < knobs().mappings, CUDA_ERROR_OUT_OF_MEMORY);

    auto region = std::make_shared<Region>();
    region->kind = Region::Kind::Mapping;
    region->address = address;
    region->bytes = bytes;
    region->buffer_id = next_buffer_id();
    if (!on_host(allocation->location)) region->device = &checked_device(allocation->location.id);
    region->physical = allocation->physical;
    region->allocation = allocation;
    region->device_access.assign(devices().size(), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    memory_map().insert(region);
    ++state().mappings;
}

void unmap(CUdeviceptr address, std::uint64_t bytes) {
    std::vector<RegionPtr> regions;  // the last references go after the lock
    std::lock_guard lock(state().mutex);
    regions = whole_mappings(address, bytes, "cuMemUnmap");
    for (const RegionPtr& region : regions) {
        memory_map().remove(region->address);
        dispose(*region);
    }
    state().mappings -= regions.size();
    if (!is(Perverse::MovesLose)) return;
    for (const RegionPtr& region : regions) state().unmapped.insert(region->address);
}

void set_access(CUdeviceptr address, std::uint64_t bytes, std::span<const CUmemAccessDesc> descriptions) {
    std::lock_guard lock(state().mutex);
    const auto regions = whole_mappings(address, bytes, "cuMemSetAccess");
    for (const CUmemAccessDesc& description : descriptions) check_description(description, regions);
    if (knobs().not_ready != 0 && ++state().set_access_calls % knobs().not_ready == 0) {
        throw Failure{CUDA_ERROR_NOT_READY};
    }
    for (const RegionPtr& region : regions) require(can_be_accessed(*region), CUDA_ERROR_NOT_READY);
    for (const RegionPtr& before : regions) {
        auto after = std::make_shared<Region>(*before);
        for (const CUmemAccessDesc& description : descriptions) {
            if (description.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
                after->device_access[static_cast<std::size_t>(description.location.id)] = description.flags;
            } else {
                after->host_access = description.flags;
            }
        }
        apply(*after->physical, other_side(after->address), widest(before->device_access),
              widest(after->device_access));
        apply(*after->physical, after->address, before->host_access, after->host_access);
        memory_map().insert(after);
        if (state().unmapped.erase(after->address) != 0)
            std::memset(to_host(after->address), 0xee, std::min<std::uint64_t>(after->bytes, 64));
    }
}

CUmemAccess_flags access(CUdeviceptr address, const CUmemLocation& location) {
    std::lock_guard lock(state().mutex);
    const RegionPtr region = memory_map().find(address);
    require(region != nullptr && region->kind == Region::Kind::Mapping, CUDA_ERROR_INVALID_VALUE);
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return region->device_access[static_cast<std::size_t>(checked_device(location.id).ordinal)];
    }
    check_location(location);
    return region->host_access;
}

}  // namespace vmm
}  // namespace simcuda::driver

#include "tools/simcuda/driver/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "tools/simcuda/driver/address_space.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/host_pages.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/managed_hints.h"
#include "tools/simcuda/driver/pool.h"
#include "tools/simcuda/driver/stream.h"
#include "tools/simcuda/driver/vmm.h"

namespace simcuda::driver {
namespace {

constexpr std::uint64_t kLarge = 2ull
                                 << 20;  // allocations from here on start on a boundary of this many bytes

// Small allocations that are alive in pages of their own. Each takes two of the system's mappings, of which a
// process has 65,530; the program and its other memory need some too.
std::atomic<unsigned> few{0};
constexpr unsigned kMostFew = 4096;

// False if there is no room.
bool place_in_piece(Region& region) {
    const Pieces::Cut cut = region.device->pieces.cut(region.bytes);
    if (cut.address == 0) return false;
    region.pages = Region::Pages::Piece;
    region.address = cut.address;
    region.physical = cut.physical;
    return true;
}

// Throws Failure with CUDA_ERROR_OUT_OF_MEMORY.
void place_in_own_pages(Region& region) {
    region.physical = Physical::create(region.device->memory, region.bytes);
    require(region.physical != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
    // A page stays free behind each allocation, so that running over its end faults.
    const std::uint64_t span = region.physical->bytes() + kPage;
    region.address = address_space().reserve(span, region.bytes >= kLarge ? kLarge : kPage);
    require(region.address != 0, CUDA_ERROR_OUT_OF_MEMORY);
    if (!region.physical->map(other_side(region.address), PROT_READ | PROT_WRITE)) {
        address_space().release(region.address, span);
        throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
    }
    if (region.bytes > Pieces::kMost) return;
    region.pages = Region::Pages::Few;
    ++few;
}

void dispose_device_memory(const Region& region) {
    if (region.pages == Region::Pages::Piece)
        return region.device->pieces.give_back(region.address, region.bytes);
    if (region.pages == Region::Pages::Few) --few;
    // Another process's may begin inside a page.
    const DeviceAddress begin = region.address / kPage * kPage;
    make_inaccessible(other_side(begin), region.physical->bytes());
    if (region.graph_memory != nullptr) return;  // keeps its address
    address_space().release(begin, region.physical->bytes() + kPage);
}

}  // namespace

bool Region::on_host() const {
    switch (kind) {
        case Kind::Device:
        case Kind::Async:
        case Kind::Managed:
        case Kind::Imported:
        case Kind::Internal:
            return false;
        case Kind::Pinned:
        case Kind::Registered:
            return true;
        case Kind::Mapping:
            return allocation->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    }
    return false;
}

std::uint64_t Region::host_address() const {
    return twin != 0 && in_device_window(address) ? twin : address;
}

std::uint64_t Region::device_address() const {
    return twin != 0 && !in_device_window(address) ? twin : address;
}

bool Region::accessible(const Device& by) const {
    if (kind != Kind::Mapping) return true;
    return device_access[static_cast<std::size_t>(by.ordinal)] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

std::uint64_t next_buffer_id() {
    static std::atomic<std::uint64_t> next{1};
    return next++;
}

void MemoryMap::insert(RegionPtr region) {
    std::unique_lock lock(mutex_);
    regions_.insert_or_assign(region->address, std::move(region));
}

RegionPtr MemoryMap::remove(std::uint64_t address) {
    std::unique_lock lock(mutex_);
    auto it = regions_.find(address);
    if (it == regions_.end()) return nullptr;
    RegionPtr region = std::move(it->second);
    regions_.erase(it);
    return region;
}

RegionPtr MemoryMap::find(std::uint64_t address) const {
    std::shared_lock lock(mutex_);
    auto it = regions_.upper_bound(address);
    if (it == regions_.begin()) return nullptr;
    --it;
    return address < it->second->end() ? it->second : nullptr;
}

std::vector<RegionPtr> MemoryMap::overlapping(std::uint64_t address, std::uint64_t bytes) const {
    std::vector<RegionPtr> found;
    std::shared_lock lock(mutex_);
    auto it = regions_.upper_bound(address);
    if (it != regions_.begin() && std::prev(it)->second->end() > address) --it;
    for (; it != regions_.end() && it->first < address + bytes; ++it) found.push_back(it->second);
    return found;
}

bool MemoryMap::covers(std::uint64_t address, std::uint64_t bytes,
                       const std::function<bool(const Region&)>& condition) const {
    std::shared_lock lock(mutex_);
    auto it = regions_.upper_bound(address);
    if (it == regions_.begin()) return false;
    const std::uint64_t end = address + bytes;
    if (end < address) return false;
    for (--it; it != regions_.end(); ++it) {
        const Region& region = *it->second;
        if (address < region.address || address >= region.end() || !condition(region)) return false;
        address = region.end();
        if (address >= end) return true;
    }
    return false;
}

std::vector<RegionPtr> MemoryMap::remove_of(const Context& context) {
    std::vector<RegionPtr> removed;
    std::unique_lock lock(mutex_);
    for (auto it = regions_.begin(); it != regions_.end();) {
        if (it->second->context.lock().get() == &context) {
            removed.push_back(std::move(it->second));
            it = regions_.erase(it);
        } else {
            ++it;
        }
    }
    return removed;
}

MemoryMap& memory_map() {
    static MemoryMap& map = *new MemoryMap;
    return map;
}

std::shared_ptr<Region> new_region(Region::Kind kind, std::uint64_t bytes, Device& device, Context& context) {
    auto region = std::make_shared<Region>();
    region->kind = kind;
    region->bytes = bytes;
    region->device = &device;
    region->context = context.weak_from_this();
    region->buffer_id = next_buffer_id();
    return region;
}

RegionPtr allocate_device(Context& context, std::uint64_t bytes, Region::Kind kind,
                          std::shared_ptr<MemoryPool> pool) {
    Device& device = pool != nullptr ? pool->device : context.device();
    const auto region = new_region(kind, bytes, device, context);
    region->pool = std::move(pool);
    const bool one_of_many = bytes <= Pieces::kMost && few >= kMostFew;
    if (!one_of_many || !place_in_piece(*region)) place_in_own_pages(*region);
    memory_map().insert(region);
    return region;
}

void spend_pinning(std::uint64_t bytes) {
    if (const double gbps = knobs().pin_gbps; gbps != 0)
        spend_ns(static_cast<std::uint64_t>(static_cast<double>(bytes) / gbps));
}

namespace {

// Moves what kernels reach from the host's address to one of the device's.
void give_twin(Region& region) {
    const std::uint64_t bytes = region.physical->bytes();
    const DeviceAddress address = address_space().reserve(bytes, kPage);
    if (address == 0 || !region.physical->map(other_side(address), PROT_READ | PROT_WRITE)) {
        if (address != 0) address_space().release(address, bytes);
        unmap_both(region.address, bytes);
        throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
    }
    unmap_alias(region.address, bytes);
    auto twin = std::make_shared<Region>(region);
    twin->address = region.twin = address;
    twin->twin = region.address;
    memory_map().insert(twin);
}

}  // namespace

RegionPtr allocate_host(Context& context, std::uint64_t bytes, unsigned flags, Region::Kind kind) {
    const auto region = new_region(kind, bytes, context.device(), context);
    region->flags = flags;
    region->physical = Physical::create(host_pool(), bytes);
    require(region->physical != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
    if (kind == Region::Kind::Pinned) spend_pinning(bytes);
    region->address = map_anywhere(*region->physical);
    if ((flags & CU_MEMHOSTALLOC_WRITECOMBINED) != 0) give_twin(*region);
    memory_map().insert(region);
    return region;
}

void register_host(Context& context, std::uint64_t address, std::uint64_t bytes, unsigned flags) {
    require(memory_map().overlapping(address, bytes).empty(), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    share_pages(address, bytes);
    spend_pinning(bytes);
    const auto region = new_region(Region::Kind::Registered, bytes, context.device(), context);
    region->address = address;
    region->flags = flags;
    memory_map().insert(region);
}

void unregister_host(std::uint64_t address) {
    const RegionPtr region = memory_map().find(address);
    require(region != nullptr && region->kind == Region::Kind::Registered,
            CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    require(region->address == address, CUDA_ERROR_INVALID_VALUE);
    memory_map().remove(address);
    dispose(*region);
}

void finish_work_on(const Region& region) {
    for (const auto& context : contexts_of(*region.device)) synchronize(*context);
}

void dispose(const Region& region) {
    switch (region.kind) {
        case Region::Kind::Device:
        case Region::Kind::Async:
        case Region::Kind::Imported:
        case Region::Kind::Internal:
            dispose_device_memory(region);
            break;
        case Region::Kind::Managed:
            forget_hints(region.address, region.bytes);
            [[fallthrough]];
        case Region::Kind::Pinned:
            if (in_device_window(region.address)) {
                make_inaccessible(other_side(region.address), region.physical->bytes());
                address_space().release(region.address, region.physical->bytes());
            } else {
                unmap_both(region.address, region.physical->bytes());
            }
            break;
        case Region::Kind::Registered:
            unshare_pages(region.address, region.bytes);
            break;
        case Region::Kind::Mapping:
            make_inaccessible(other_side(region.address), region.bytes);
            if (region.host_access != CU_MEM_ACCESS_FLAGS_PROT_NONE)
                make_inaccessible(region.address, region.bytes);
            break;
    }
}

}  // namespace simcuda::driver

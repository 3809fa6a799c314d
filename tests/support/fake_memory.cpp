#include "tests/support/fake_memory.h"

#include <fmt/core.h>

#include <algorithm>

namespace lms::fake {

Memory::Memory(std::uint64_t granularity, std::uint64_t device_bytes, bool maps_host, std::uint64_t seed)
    : granularity_(granularity), device_bytes_(device_bytes), maps_host_(maps_host), random_(seed) {}

CUresult Memory::broken(std::string rule, CUresult status) {
    violations_.push_back(std::move(rule));
    return status;
}

std::shared_ptr<Memory::Storage> Memory::make(std::uint64_t bytes, Place place) {
    auto* storage = new Storage{place, std::vector<std::uint8_t>(bytes)};
    for (std::uint8_t& byte : storage->bytes) byte = static_cast<std::uint8_t>(random_());
    if (place == Place::Device) used_bytes_ += bytes;
    if (place == Place::Host && host_taken) *host_taken += bytes;
    return {storage, [this](Storage* gone) {
                if (gone->place == Place::Device) used_bytes_ -= gone->bytes.size();
                if (gone->place == Place::Host && host_taken) *host_taken -= gone->bytes.size();
                delete gone;
            }};
}

CUresult Memory::reserve(std::uint64_t bytes, Address& address) {
    if (!sized(bytes)) return broken(fmt::format("reserve {} bytes", bytes));
    address = next_reserved_;
    next_reserved_ += bytes + granularity_;
    reserved_.emplace(address, bytes);
    return CUDA_SUCCESS;
}

CUresult Memory::unreserve(Address address, std::uint64_t bytes) {
    const auto it = reserved_.find(address);
    if (it == reserved_.end() || it->second != bytes) return broken("unreserve what was not reserved");
    if (mappings(address, address + bytes) > 0) return broken("unreserve with mappings left");
    reserved_.erase(it);
    return CUDA_SUCCESS;
}

bool Memory::reserved(Address address, std::uint64_t bytes) const {
    auto it = reserved_.upper_bound(address);
    if (it == reserved_.begin()) return false;
    --it;
    return address - it->first < it->second && bytes <= it->second - (address - it->first);
}

CUresult Memory::create(std::uint64_t bytes, Place place, CUmemGenericAllocationHandle& handle) {
    if (!sized(bytes)) return broken(fmt::format("create {} bytes", bytes));
    if (place == Place::Host && !maps_host_) return broken("create host memory that cannot be mapped");
    if (place == Place::Device && used_bytes() + bytes > device_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
    handle = next_handle_++;
    handles_.emplace(handle, make(bytes, place));
    return CUDA_SUCCESS;
}

CUresult Memory::release(CUmemGenericAllocationHandle handle) {
    return handles_.erase(handle) == 1 ? CUDA_SUCCESS : broken("release an unknown handle");
}

CUresult Memory::map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle, Place place) {
    const auto known = handles_.find(handle);
    if (known == handles_.end()) return broken("map an unknown handle");
    if (address % granularity_ != 0) return broken("map at an unaligned address");
    if (known->second->bytes.size() != bytes) return broken("map part of a handle");
    if (known->second->place != place) return broken("map a handle as what it is not");
    if (!reserved(address, bytes)) return broken("map outside what is reserved");
    auto next = mappings_.lower_bound(address);
    if (next != mappings_.end() && next->first < address + bytes) return broken("map over a mapping");
    if (find(address)) return broken("map within a mapping");
    mappings_.emplace(address, Mapping{bytes, known->second, false, false});
    return CUDA_SUCCESS;
}

std::vector<Memory::Mappings::iterator> Memory::whole(Address address, std::uint64_t bytes,
                                                      const char* call) {
    std::vector<Mappings::iterator> those;
    auto it = mappings_.find(address);
    for (std::uint64_t done = 0; done < bytes; done += (it++)->second.bytes) {
        const bool mapped = it != mappings_.end() && it->first == address + done && !it->second.pinned;
        if (!mapped || it->second.bytes > bytes - done) {
            broken(fmt::format("{} what is not mapped, or part of a mapping", call));
            return {};
        }
        those.push_back(it);
    }
    return those;
}

CUresult Memory::admit(Address address, std::uint64_t bytes) {
    const auto those = whole(address, bytes, "admit to");
    for (const auto& it : those) it->second.admitted = true;
    return those.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Memory::unmap(Address address, std::uint64_t bytes) {
    const auto those = whole(address, bytes, "unmap");
    for (const auto& it : those) mappings_.erase(it);
    return those.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Memory::pin(std::uint64_t bytes, Address& host) {
    if (bytes == 0) return broken("pin nothing");
    const std::shared_ptr<Storage> storage = make(bytes, Place::Host);
    host = reinterpret_cast<Address>(storage->bytes.data());
    mappings_.emplace(host, Mapping{bytes, storage, true, true});
    ++pinned_;
    return CUDA_SUCCESS;
}

CUresult Memory::unpin(Address host) {
    const auto it = mappings_.find(host);
    if (it == mappings_.end() || !it->second.pinned) return broken("unpin what is not pinned");
    unpinned_.push_back(std::move(it->second.storage));
    mappings_.erase(it);
    --pinned_;
    return CUDA_SUCCESS;
}

const std::pair<const Address, Memory::Mapping>* Memory::find(Address address) const {
    auto it = mappings_.upper_bound(address);
    if (it == mappings_.begin()) return nullptr;
    --it;
    return address - it->first < it->second.bytes ? &*it : nullptr;
}

template <typename Visit>
void Memory::access(Address address, std::uint64_t count, Actor actor, Visit&& visit) {
    for (std::uint64_t done = 0; done < count;) {
        const auto* found = find(address + done);
        if (!found || !found->second.admitted || (found->second.pinned && actor == Actor::Kernel)) {
            broken(fmt::format("a {} touches {:#x}, where nothing is mapped",
                               actor == Actor::Kernel ? "kernel" : "copy", address + done));
            return;
        }
        const std::uint64_t offset = address + done - found->first;
        const std::uint64_t part = std::min(count - done, found->second.bytes - offset);
        visit(found->second.storage->bytes.data() + offset, done, part);
        done += part;
    }
}

void Memory::read(Address address, std::uint8_t* bytes, std::uint64_t count, Actor actor) {
    access(address, count, actor, [&](const std::uint8_t* from, std::uint64_t offset, std::uint64_t part) {
        std::copy_n(from, part, bytes + offset);
    });
}

void Memory::write(Address address, const std::uint8_t* bytes, std::uint64_t count, Actor actor) {
    access(address, count, actor, [&](std::uint8_t* to, std::uint64_t offset, std::uint64_t part) {
        std::copy_n(bytes + offset, part, to);
    });
}

std::size_t Memory::handles(Place place) const {
    return static_cast<std::size_t>(std::count_if(
        handles_.begin(), handles_.end(), [&](const auto& entry) { return entry.second->place == place; }));
}

std::size_t Memory::mappings(Address begin, Address end) const {
    return static_cast<std::size_t>(std::count_if(mappings_.begin(), mappings_.end(), [&](const auto& entry) {
        return !entry.second.pinned && begin <= entry.first && entry.first < end;
    }));
}

Place Memory::place_of(CUmemGenericAllocationHandle handle) const {
    const auto known = handles_.find(handle);
    return known == handles_.end() ? Place::Device : known->second->place;
}

bool Memory::where(Address address, Place& place) const {
    const auto* found = find(address);
    if (found) place = found->second.storage->place;
    return found != nullptr;
}

}  // namespace lms::fake

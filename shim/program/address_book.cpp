#include "shim/program/address_book.h"

#include <algorithm>
#include <iterator>

namespace lms::program {

using engine::Address;

CUmemAccess_flags View::access_of(CUdevice of) const {
    for (const CUmemAccessDesc& each : access) {
        if (each.location.type == CU_MEM_LOCATION_TYPE_DEVICE && each.location.id == of) return each.flags;
    }
    return CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

void set(Access& all, const CUmemAccessDesc& access) {
    const auto known = std::ranges::find_if(all, [&](const CUmemAccessDesc& each) {
        return each.location.type == access.location.type && each.location.id == access.location.id;
    });
    if (known == all.end()) {
        all.push_back(access);
    } else {
        known->flags = access.flags;
    }
}

std::optional<AddressRange> AddressBook::reservation_of(Address address, std::uint64_t bytes) const {
    auto it = reserved_.upper_bound(address);
    if (it == reserved_.begin()) return std::nullopt;
    --it;
    const std::uint64_t offset = address - it->first;
    if (offset >= it->second || bytes > it->second - offset) return std::nullopt;
    return AddressRange{it->first, it->first + it->second};
}

bool AddressBook::ends_at(Address address) const {
    const auto after = reserved_.lower_bound(address);
    return after != reserved_.begin() && std::prev(after)->first + std::prev(after)->second == address;
}

bool AddressBook::divides(Address address) const {
    return reserved_.contains(address) && !joints_.contains(address);
}

void AddressBook::reserve(Address address, std::uint64_t bytes, Address asked) {
    ++memory_changes;
    reserved_[address] = bytes;
    // What was known of these addresses was of others.
    joints_.erase(address);
    joints_.erase(address + bytes);
    if (asked != address) return;
    if (ends_at(address)) joints_.insert(address);
    if (reserved_.contains(address + bytes)) joints_.insert(address + bytes);
}

std::uint64_t AddressBook::unreserve(Address address) {
    ++memory_changes;
    const auto taken = reserved_.extract(address);
    return taken ? taken.mapped() : 0;
}

void AddressBook::each(const std::function<void(View&)>& visit) {
    ++memory_changes;
    for (auto& [address, view] : views_) visit(view);
}

const View* AddressBook::find(Address address) const {
    auto it = views_.upper_bound(address);
    if (it == views_.begin()) return nullptr;
    --it;
    return address < it->second.end() ? &it->second : nullptr;
}

std::vector<View> AddressBook::in(Address address, std::uint64_t bytes) const {
    std::vector<View> found;
    auto it = views_.upper_bound(address);
    if (it != views_.begin() && std::prev(it)->second.end() > address) --it;
    for (; it != views_.end() && it->first < address + bytes; ++it) found.push_back(it->second);
    return found;
}

std::vector<View> AddressBook::whole(Address address, std::uint64_t bytes) const {
    std::vector<View> views = in(address, bytes);
    Address at = address;
    for (const View& view : views) {
        if (view.address != at) return {};
        at = view.end();
    }
    return at == address + bytes ? views : std::vector<View>{};
}

void AddressBook::each_of_run(Address address, std::uint64_t near,
                              const std::function<void(const View&)>& visit) const {
    const View* middle = find(address);
    if (!middle && near > 0) {
        const View* const before = find(address - near);
        const View* const after = find(address + near);
        const bool lower_half = address % near < near / 2;
        middle = before && (lower_half || !after) ? before : after;
    }
    if (!middle) return;
    auto it = views_.find(middle->address);
    while (it != views_.begin() && std::prev(it)->second.end() == it->first && !divides(it->first)) --it;
    for (Address end = it->first; it != views_.end() && it->first == end; ++it) {
        visit(it->second);
        end = it->second.end();
        if (divides(end)) return;
    }
}

AddressRange AddressBook::run_at(Address address, std::uint64_t near) const {
    AddressRange run;
    each_of_run(address, near, [&](const View& view) {
        if (run.end == 0) run.begin = view.address;
        run.end = view.end();
    });
    return run;
}

// Never destroyed: memory is given back by other libraries' exit handlers too.
ProgramAddresses& program_addresses() {
    static ProgramAddresses& instance = *new ProgramAddresses;
    return instance;
}

}  // namespace lms::program

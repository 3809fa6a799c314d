#include "shim/access/arguments.h"

#include <algorithm>
#include <cstring>

#include "shim/access/layouts.h"
#include "shim/access/pointer_scan.h"
#include "shim/access/pointer_tables.h"
#include "shim/access/tensor_maps.h"
#include "shim/access/used_addresses.h"

namespace lms::shim {

namespace {

// What the driver reads of a buffer, however large it is called.
std::size_t bytes_of_parameters(const Layout& layout) {
    constexpr std::size_t kMost = 32764;
    if (!layout.known) return kMost;
    std::size_t end = 0;
    for (const Parameter& each : layout.parameters) end = std::max(end, each.offset + each.bytes);
    return end;
}

}  // namespace

void add_arguments(WorkingSet& reach, CUfunction function, void** parameters, void** extra, bool later) {
    constexpr std::size_t kFew = 8;  // what most launches name, for which there is room at once
    reach.addresses.reserve(kFew);
    const auto layout = layout_of(function);
    reach.owners.insert(reach.owners.end(), layout->owners.begin(), layout->owners.end());
    reach.opaque |= layout->addresses == Addresses::Incomplete;
    reach.unseen |= layout->addresses == Addresses::Unknown;
    const Bounds managed = managed_bounds();
    const Bounds tables = later || any_tables() ? table_bounds() : Bounds{};
    const auto add = [&](const void* data, std::size_t offset, std::size_t bytes) {
        const auto found = [&](std::size_t at, engine::Address address) {
            const bool written = layout->written.touch(offset + at, sizeof address);
            (written ? reach.addresses : reach.only_read).push_back(address);
        };
        scan(data, bytes, managed, found);
        scan(data, bytes, tables, found);
        if (bytes >= sizeof(CUtensorMap)) find_tensor_maps(data, offset, bytes, reach.addresses);
    };
    // By `read(place, to, bytes)`: what is used as an address, or may be.
    const auto add_accesses = [&](auto&& read) {
        for (const PlacedAccess& access : layout->accesses) add_used(reach, access, read);
        if (layout->addresses != Addresses::Unknown) return;
        for (std::size_t i = 0; i < layout->parameters.size(); ++i) {
            engine::Address word = 0;
            if (layout->parameters[i].bytes != sizeof word) continue;
            read(Place{i, 0}, &word, sizeof word);
            add_used(reach, word, managed);
        }
    };
    if (extra) {
        const void* buffer = nullptr;
        std::size_t bytes = 0;
        for (void** item = extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
            if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = item[1];
            if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const std::size_t*>(item[1]);
        }
        if (buffer) add(buffer, 0, std::min(bytes, bytes_of_parameters(*layout)));
        if (!buffer || bytes < bytes_of_parameters(*layout)) return;
        add_accesses([&](const Place& at, void* to, std::size_t n) {
            const std::size_t offset = layout->parameters[at.parameter].offset + at.offset;
            std::memcpy(to, static_cast<const char*>(buffer) + offset, n);
        });
        return;
    }
    reach.opaque |= !layout->known;
    if (!parameters) return;
    for (std::size_t i = 0; i < layout->parameters.size(); ++i) {
        add(parameters[i], layout->parameters[i].offset, layout->parameters[i].bytes);
    }
    add_accesses([&](const Place& at, void* to, std::size_t n) {
        std::memcpy(to, static_cast<const char*>(parameters[at.parameter]) + at.offset, n);
    });
}

}  // namespace lms::shim

#include "shim/access/arguments.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "shim/access/layouts.h"
#include "shim/access/pointer_scan.h"
#include "shim/access/pointer_tables.h"
#include "shim/access/tensor_maps.h"
#include "shim/access/used_addresses.h"
#include "shim/program/memory_changes.h"

namespace lms::access {

namespace {

// What the driver reads of a buffer, however large it is called.
std::size_t bytes_of_parameters(const Layout& layout) {
    constexpr std::size_t kMost = 32764;
    return layout.known ? layout.bytes() : kMost;
}

// What of a launch is looked at.
struct Looked {
    const Layout& layout;
    session::Bounds managed, tables;
    // Null: its accesses may go to all that it names. Else none is by an address that it has loaded, so what
    // tables hold does not count.
    const code::AccessBounds* bounds = nullptr;
};

// Addresses in the bytes of one parameter, or of all of them.
void add_words(session::WorkingSet& reach, const Looked& look, const void* data, std::size_t offset,
               std::size_t bytes) {
    const auto found = [&](std::size_t at, engine::Address address) {
        const auto leads_to = [&](const code::ParameterWords& words) {
            return words.touch(offset + at, sizeof address);
        };
        if (look.bounds) {
            if (leads_to(look.bounds->written)) return reach.addresses.push_back(address);
            if (leads_to(look.bounds->read)) reach.only_read.push_back(address);
            return;
        }
        (leads_to(look.layout.written) ? reach.addresses : reach.only_read).push_back(address);
    };
    scan(data, bytes, look.managed, found);
    if (look.tables.begin != look.tables.end) scan(data, bytes, look.tables, found);
    if (bytes >= sizeof(CUtensorMap)) find_tensor_maps(data, offset, bytes, reach.addresses);
}

// By `read(place, to, bytes)`: what is used as an address, or may be.
template <typename Read>
void add_accesses(session::WorkingSet& reach, const Looked& look, Read&& read) {
    const Layout& layout = look.layout;
    constexpr std::size_t kFew = 16;  // of which most kernels have no more
    reach.used.reserve(std::min(layout.accesses.size(), kFew));
    const auto is_bounded = [&](const PlacedAccess& access) {
        return look.bounds && std::ranges::none_of(access.words, [&](const PlacedAccess::Word& each) {
                   const std::size_t at = layout.parameters[each.at.parameter].offset + each.at.offset;
                   return look.bounds->read.touch(at, sizeof(engine::Address)) ||
                          look.bounds->written.touch(at, sizeof(engine::Address));
               });
    };
    for (const PlacedAccess& access : layout.accesses) {
        if (!is_bounded(access)) add_used(reach, access, read);
    }
    if (layout.addresses != code::Addresses::Unknown) return;
    for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
        engine::Address word = 0;
        if (layout.parameters[i].bytes != sizeof word) continue;
        read(Place{i, 0}, &word, sizeof word);
        add_used(reach, word, look.managed);
    }
}

// Buffers that launches name one after the other are looked up once.
class BufferLookup {
  public:
    // The managed buffer around an address, in bytes; none: it is empty.
    session::Bounds around(engine::Address address) {
        if (in(last_, address)) return last_;
        session::Session* const session = session::session_at(address);
        const auto buffer = session ? session->buffer_at(address) : std::nullopt;
        return last_ = buffer ? session::Bounds{buffer->address, buffer->address + buffer->bytes}
                              : session::Bounds{};
    }

  private:
    session::Bounds last_{};
};

// Adds what it accesses of managed memory. False, and nothing is added: a range is not within one buffer, so
// that it says less than the buffers do.
bool add_ranges(session::WorkingSet& reach, const code::AccessBounds& bounds, session::Bounds managed) {
    BufferLookup buffers;
    const std::size_t before = reach.ranges.size();
    for (const code::AccessRange& range : bounds.ranges) {
        if (range.end <= managed.begin || range.begin >= managed.end) continue;
        if (range.end > buffers.around(range.begin).end) {
            reach.ranges.resize(before);
            return false;
        }
        reach.ranges.push_back({range.begin, range.end - range.begin, false, false, !range.written});
    }
    return true;
}

}  // namespace

namespace {

// What is found in them. `tables`: in which arguments may be pointer tables.
void add_found(session::WorkingSet& reach, const Layout& layout, session::Bounds tables, void** parameters,
               void** extra, const code::LaunchShape* shape) {
    constexpr std::size_t kFew = 8;  // what most launches name, for which there is room at once
    reach.addresses.reserve(kFew);
    reach.opaque |= layout.addresses == code::Addresses::Incomplete;
    reach.unseen |= layout.addresses == code::Addresses::Unknown;
    Looked look{layout, session::managed_bounds(), tables};
    code::AccessBounds bounds;
    const auto look_at_bounds = [&](auto&& read) {
        if (!layout.bounds || !shape) return;
        bounds = layout.bounds->bounds(*shape, read);
        if (add_ranges(reach, bounds, look.managed)) look.bounds = &bounds;
    };
    if (extra) {
        const std::span<const std::byte> packed = packed_parameters(extra);
        const auto read = [&](const Place& at, void* to, std::size_t n) {
            std::memcpy(to, packed.data() + layout.parameters[at.parameter].offset + at.offset, n);
        };
        const bool whole = packed.data() && packed.size() >= bytes_of_parameters(layout);
        if (whole) look_at_bounds(read);
        if (packed.data())
            add_words(reach, look, packed.data(), 0, std::min(packed.size(), bytes_of_parameters(layout)));
        if (whole) add_accesses(reach, look, read);
        return;
    }
    reach.opaque |= !layout.known;
    if (!parameters) return;
    const auto read = [&](const Place& at, void* to, std::size_t n) {
        std::memcpy(to, static_cast<const char*>(parameters[at.parameter]) + at.offset, n);
    };
    look_at_bounds(read);
    for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
        const code::Parameter& each = layout.parameters[i];
        if (each.bytes >= sizeof(engine::Address))
            add_words(reach, look, parameters[i], each.offset, each.bytes);
    }
    add_accesses(reach, look, read);
}

void add_owners(session::WorkingSet& reach, const Layout& layout) {
    reach.owners.insert(reach.owners.end(), layout.owners.begin(), layout.owners.end());
}

// The arguments as words, each parameter from one on; for a layout that has KnownLaunches.
void read_words(KnownLaunches::Launch& launch, const Layout& layout, void** parameters) {
    constexpr std::size_t kWord = sizeof(std::uint64_t);
    for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
        const char* from = static_cast<const char*>(parameters[i]);
        std::size_t left = layout.parameters[i].bytes;
        for (; left >= kWord; left -= kWord, from += kWord)
            std::memcpy(&launch.words[launch.count++], from, kWord);
        if (left > 0) {
            launch.words[launch.count] = 0;
            std::memcpy(&launch.words[launch.count++], from, left);
        }
    }
}

// As it was found before, where that is known.
void add_known(session::WorkingSet& reach, const Layout& layout, void** parameters, void** extra,
               const code::LaunchShape& shape) {
    const std::uint64_t changes = program::memory_changes.load();
    session::Bounds tables;
    if (any_tables()) {
        tables = table_bounds();
        add_owners(reach, layout);
    }
    if (extra || !parameters || !layout.launches || !layout.launches->is_settled(changes)) {
        add_found(reach, layout, tables, parameters, extra, &shape);
        follow_used(reach);
        return;
    }
    KnownLaunches::Launch launch;
    launch.changes = changes;
    launch.shape = shape;
    launch.tables = tables;
    read_words(launch, layout, parameters);
    if (layout.launches->find(launch, reach)) return;
    add_found(reach, layout, tables, parameters, nullptr, &shape);
    if (follow_used(reach)) layout.launches->keep(launch, reach);
}

}  // namespace

void add_arguments(session::WorkingSet& reach, CUfunction function, void** parameters, void** extra,
                   const code::LaunchShape* shape, bool later) {
    const auto layout = layout_of(function);
    add_owners(reach, *layout);
    add_found(reach, *layout, later || any_tables() ? table_bounds() : session::Bounds{}, parameters, extra,
              shape);
}

void add_launch(session::WorkingSet& reach, CUfunction function, void** parameters, void** extra,
                const code::LaunchShape& shape) {
    const auto layout = layout_of(function);
    add_known(reach, *layout, parameters, extra, shape);
    reach.opaque |= layout->exempt->is_one();
}

std::span<const std::byte> packed_parameters(void** extra) {
    const void* begin = nullptr;
    std::size_t bytes = 0;
    for (void** item = extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
        if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) begin = item[1];
        if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const std::size_t*>(item[1]);
    }
    return {static_cast<const std::byte*>(begin), begin ? bytes : 0};
}

}  // namespace lms::access

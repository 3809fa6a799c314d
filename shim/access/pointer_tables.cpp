#include "shim/access/pointer_tables.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "shim/access/pointer_words.h"
#include "shim/device/driver_table.h"
#include "shim/program/address_book.h"
#include "shim/session/session.h"
#include "shim/session/working_set.h"
#include "shim/util/mutex.h"
#include "shim/util/past_caches.h"
#include "shim/util/readable.h"

namespace lms::access {

namespace {

using engine::Address;

constexpr std::uint64_t kPointerBytes = sizeof(Address);

// Addresses that nobody has: so many handles of so many bytes.
constexpr Address kNobodys = Address{1} << 63;
constexpr std::uint64_t kMostOfHandle = std::uint64_t{1} << 42;
constexpr std::uint64_t kParked = std::uint64_t{1} << 20;

// Memory that is not managed and may hold addresses: an allocation, or a variable.
struct Region {
    Address end;
    std::vector<const void*> owners;  // of a variable
    bool copied_into = false;         // from device memory, whose contents kernels may have written
};

// Never destroyed: other libraries' exit handlers copy too.
struct TableRegistry {
    util::Mutex mutex{util::LockOrder::PointerTables};
    PointerWords words LMS_GUARDED_BY(mutex);
    std::map<Address, Region> regions LMS_GUARDED_BY(mutex);              // by their begin
    std::multimap<const void*, Address> variables LMS_GUARDED_BY(mutex);  // by owner: their begins
    // Where what is known of handles is while they are mapped nowhere; how many there ever were.
    std::unordered_map<CUmemGenericAllocationHandle, Address> parked LMS_GUARDED_BY(mutex);
    std::uint64_t ever_parked LMS_GUARDED_BY(mutex) = 0;
    // All memory seen that is not managed lies in [begin, end).
    std::atomic<Address> begin{~Address{0}};
    std::atomic<Address> end{0};
};

TableRegistry& table_registry() {
    static TableRegistry& instance = *new TableRegistry;
    return instance;
}

void lower(std::atomic<Address>& value, Address to) {
    for (Address now = value.load(); to < now && !value.compare_exchange_weak(now, to);) {
    }
}
void raise(std::atomic<Address>& value, Address to) {
    for (Address now = value.load(); to > now && !value.compare_exchange_weak(now, to);) {
    }
}

// Calls `visit(its address in a, in b)` for each row of two boxes; the shape is a's.
template <typename Visit>
void each_row(const StridedRegion& a, const StridedRegion& b, Visit&& visit)
    LMS_LOCKS(no_thread_safety_analysis) {
    for (std::uint64_t z = 0; z < a.depth; ++z) {
        for (std::uint64_t y = 0; y < a.height; ++y) {
            visit(a.begin + z * a.slice_pitch + y * a.pitch, b.begin + z * b.slice_pitch + y * b.pitch);
        }
    }
}

CUresult type_of(Address address, unsigned int& type) {
    return device::driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
}

// Looks for addresses in what the host copies: has just copied, or, `later`, may copy, from memory that need
// not be there now: a condition keeps the copy from running, or a host function makes it before.
class Search {
  public:
    explicit Search(bool later)
        : later_(later), managed_(session::managed_bounds()), unmanaged_(table_bounds()) {}

    std::vector<PointerWord> words(const StridedRegion& to, const StridedRegion& from) {
        constexpr std::uint64_t kAll = 1 << 20;
        if (bytes_of(to) <= kAll || found_in_samples(to, from)) {
            found_.clear();
            each_row(to, from, [&](Address row, Address source) { look(row, source, to.width); });
        }
        return std::move(found_);
    }

  private:
    bool found_in_samples(const StridedRegion& to, const StridedRegion& from) {
        constexpr std::uint64_t kEvery = 64 << 10;
        constexpr std::uint64_t kSample = 4 << 10;
        std::uint64_t before = 0;  // bytes of the rows before this one
        each_row(to, from, [&](Address row, Address source) {
            for (std::uint64_t at = 0; at < to.width && found_.empty();) {
                const std::uint64_t phase = (before + at) % kEvery;
                if (phase >= kSample) {
                    at += kEvery - phase;
                    continue;
                }
                const std::uint64_t bytes = std::min(kSample - phase, to.width - at);
                look(row + at, source + at, bytes);
                at += bytes;
            }
            before += to.width;
        });
        return !found_.empty();
    }

    // `bytes` at host address `source`, copied to `to`.
    void look(Address to, Address source, std::uint64_t bytes) {
        constexpr std::uint64_t kBlock = 512;
        const std::uint64_t skip = (kPointerBytes - to % kPointerBytes) % kPointerBytes;
        if (bytes < skip) return;
        const char* from = reinterpret_cast<const char*>(source) + skip;
        to += skip;
        for (std::uint64_t left = (bytes - skip) / kPointerBytes; left > 0;) {
            const std::uint64_t n = std::min(left, kBlock);
            Address block[kBlock];
            bool any = false;
            if (read(block, from, n * kPointerBytes)) {
                for (std::uint64_t i = 0; i < n; ++i) any |= wanted(block[i]);
            }
            for (std::uint64_t i = 0; any && i < n; ++i) {
                if (wanted(block[i])) found_.push_back({to + i * kPointerBytes, block[i]});
            }
            from += n * kPointerBytes;
            to += n * kPointerBytes;
            left -= n;
        }
    }

    bool read(Address* block, const char* from, std::uint64_t bytes) const {
        if (later_ && util::copy_if_readable(block, from, bytes)) return true;
        // The driver's page-locked memory may not be the kernel's to copy.
        unsigned int type = CU_MEMORYTYPE_DEVICE;
        if (later_ &&
            (type_of(reinterpret_cast<Address>(from), type) != CUDA_SUCCESS || type != CU_MEMORYTYPE_HOST))
            return false;
        util::read_past_caches(block, from, bytes);
        return true;
    }

    // Without a branch between: most words are neither.
    bool wanted(Address word) const {
        return (unsigned{in(managed_, word)} | unsigned{in(unmanaged_, word)}) != 0;
    }

    const bool later_;
    const session::Bounds managed_;
    const session::Bounds unmanaged_;
    std::vector<PointerWord> found_;
};

// The allocation, not managed, that `to` lies in; what it spans where the driver does not know of one.
std::optional<Extent> allocation_of(const StridedRegion& to) {
    if (session::session_at(to.begin)) return std::nullopt;
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    if (device::driver().cuMemGetAddressRange_v2(&base, &bytes, to.begin) == CUDA_SUCCESS)
        return Extent{base, base + bytes};
    return Extent{to.begin, to.begin + span_of(to).bytes};
}

std::map<Address, Region>::iterator region_at(TableRegistry& all, Address address) LMS_REQUIRES(all.mutex) {
    auto it = all.regions.upper_bound(address);
    if (it == all.regions.begin()) return all.regions.end();
    --it;
    return address < it->second.end ? it : all.regions.end();
}

void erase_region(TableRegistry& all, std::map<Address, Region>::iterator it) LMS_REQUIRES(all.mutex) {
    all.words.overwrite(it->first, it->second.end - it->first, {});
    std::erase_if(all.variables, [&](const auto& variable) { return variable.second == it->first; });
    all.regions.erase(it);
}

KnownRegion take_region(TableRegistry& all, std::map<Address, Region>::iterator it) LMS_REQUIRES(all.mutex) {
    const std::uint64_t bytes = it->second.end - it->first;
    KnownRegion known{it->first, bytes, it->second.owners, it->second.copied_into,
                      all.words.words_in(it->first, bytes)};
    erase_region(all, it);
    return known;
}

// There is a region from here on; those that overlap it otherwise were of memory since freed.
Region& enter_region(TableRegistry& all, Extent extent) LMS_REQUIRES(all.mutex) {
    auto it = region_at(all, extent.begin);
    if (it == all.regions.end()) it = all.regions.lower_bound(extent.begin);
    while (it != all.regions.end() && it->first < extent.end) {
        if (it->first == extent.begin && it->second.end == extent.end) return it->second;
        erase_region(all, it++);
    }
    lower(all.begin, extent.begin);
    raise(all.end, extent.end);
    return all.regions.try_emplace(extent.begin, Region{extent.end, {}}).first->second;
}

// Words at `to` belong to a region from here on: to the variable it is in, else to `allocation`.
void cover(TableRegistry& all, const StridedRegion& to, const std::optional<Extent>& allocation)
    LMS_REQUIRES(all.mutex) {
    const auto known = region_at(all, to.begin);
    if (known != all.regions.end() && !known->second.owners.empty()) return;
    if (allocation) enter_region(all, *allocation);
}

void move_words(TableRegistry& all, Address to, Address from, std::uint64_t bytes) LMS_REQUIRES(all.mutex) {
    all.words.copy(to, from, bytes);
    const auto region = all.regions.find(from);
    if (region != all.regions.end()) {
        erase_region(all, region);
    } else {
        all.words.overwrite(from, bytes, {});
    }
}

// [begin, begin + bytes) holds what the host wrote.
void known_again(TableRegistry& all, Address begin, std::uint64_t bytes) LMS_REQUIRES(all.mutex) {
    const auto it = region_at(all, begin);
    if (it != all.regions.end() && it->first == begin && it->second.end <= begin + bytes)
        it->second.copied_into = false;
}

// What the program has mapped around `address` of handles that have become the driver's.
std::optional<Extent> handed_over(Address address) {
    if (!program::managed_views.load(std::memory_order_relaxed)) return std::nullopt;
    const util::SharedLock lock(program::program_addresses().mutex);
    const program::AddressRange run = program::program_addresses().book.run_at(address, 0);
    if (run.end == 0) return std::nullopt;
    return Extent{run.begin, run.end};
}

std::optional<Extent> extent_of(TableRegistry& all, Address address) LMS_REQUIRES(all.mutex) {
    if (session::Session* session = session::session_at(address)) {
        const auto buffer = session->buffer_near(address);
        if (!buffer) return std::nullopt;
        return Extent{buffer->address, buffer->address + buffer->bytes};
    }
    const auto region = region_at(all, address);
    if (region == all.regions.end()) return handed_over(address);
    return Extent{region->first, region->second.end};
}

void read_words(const StridedRegion& to, const StridedRegion& from, Effect effect) {
    if (!may_be_tables() || bytes_of(to) == 0) return;
    const std::vector<PointerWord> words = Search(effect == Effect::Adds).words(to, from);
    TableRegistry& all = table_registry();
    if (words.empty() && !table_words_seen.load()) return;
    const auto allocation = words.empty() ? std::nullopt : allocation_of(to);
    const util::Lock lock(all.mutex);
    if (!words.empty()) {
        cover(all, to, allocation);
        table_words_seen = true;
    }
    if (effect == Effect::Replaces) {
        known_again(all, to.begin, to.width);
        each_row(to, from, [&](Address row, Address) LMS_REQUIRES(all.mutex) {
            all.words.overwrite(row, to.width, {});
        });
    }
    all.words.add(words);
}

bool is_reserved_by_program(Address address) {
    const util::SharedLock lock(program::program_addresses().mutex);
    return program::program_addresses().book.reservation_of(address).has_value();
}

}  // namespace

bool may_be_tables() {
    return session::managed_bounds().end != 0 || table_registry().end.load() != 0;
}

namespace {

std::optional<Address> if_readable(Address address) {
    return util::is_readable(address) ? std::optional(address) : std::nullopt;
}

}  // namespace

std::optional<Address> host_address_of(Address address) {
    if (session::session_at(address)) return std::nullopt;
    unsigned int type = CU_MEMORYTYPE_DEVICE;
    const CUresult status = type_of(address, type);
    // Pageable memory is not known to the driver; nor is what a graph will allocate, before it is launched.
    if (status == CUDA_ERROR_INVALID_VALUE) return if_readable(address);
    // Any other answer does not make it the CPU's to read; of what the program maps itself not even that one.
    if (type != CU_MEMORYTYPE_HOST) return std::nullopt;
    if (is_reserved_by_program(address)) return if_readable(address);
    // Write-combined and registered memory may have an address for the GPU alone.
    CUdeviceptr host = 0;
    const CUresult told =
        device::driver().cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address);
    return told == CUDA_SUCCESS ? std::optional<Address>(host) : if_readable(address);
}

bool is_host_memory(Address address) {
    return host_address_of(address).has_value();
}

void note_upload(const StridedRegion& to, const StridedRegion& from, Effect effect) {
    if (in(session::managed_bounds(), from.begin) || in(table_bounds(), from.begin)) {
        note_transfer(to, from, effect);
    } else {
        read_words(to, from, effect);
    }
}

void note_word(Address at, std::uint64_t value, Effect effect) {
    read_words({at, sizeof value}, {reinterpret_cast<Address>(&value), sizeof value}, effect);
}

void note_copy(const StridedRegion& to, const StridedRegion& from, Effect effect) {
    if (!may_be_tables() || bytes_of(to) == 0) return;
    TableRegistry& all = table_registry();
    if (!any_tables()) return;
    const auto allocation = allocation_of(to);
    const util::Lock lock(all.mutex);
    const auto region = region_at(all, to.begin);
    if (region != all.regions.end()) region->second.copied_into = true;
    bool any = false;
    each_row(to, from, [&](Address, Address source) LMS_REQUIRES(all.mutex) {
        any |= all.words.any_in(source, to.width);
    });
    if (any) cover(all, to, allocation);
    each_row(to, from, [&](Address row, Address source) LMS_REQUIRES(all.mutex) {
        if (effect == Effect::Replaces) {
            all.words.copy(row, source, to.width);
        } else {
            all.words.add(all.words.copied(row, source, to.width));
        }
    });
}

void note_transfer(const StridedRegion& to, const StridedRegion& from, Effect effect) {
    if (!may_be_tables() || bytes_of(to) == 0) return;
    if (const auto host = host_address_of(from.begin)) {
        StridedRegion readable = from;
        readable.begin = *host;
        read_words(to, readable, effect);
    } else {
        note_copy(to, from, effect);
    }
}

void note_typed(const StridedRegion& to, const StridedRegion& from, CUmemorytype from_type, Effect effect) {
    switch (from_type) {
        case CU_MEMORYTYPE_HOST:
            return note_upload(to, from, effect);
        case CU_MEMORYTYPE_DEVICE:
        case CU_MEMORYTYPE_UNIFIED:
            return note_transfer(to, from, effect);
        case CU_MEMORYTYPE_ARRAY:
            if (effect == Effect::Replaces) note_set(to);
            return;
    }
}

void note_set(const StridedRegion& to) {
    TableRegistry& all = table_registry();
    if (!table_words_seen.load()) return;
    const util::Lock lock(all.mutex);
    known_again(all, to.begin, to.width);
    each_row(to, to,
             [&](Address row, Address) LMS_REQUIRES(all.mutex) { all.words.overwrite(row, to.width, {}); });
}

void note_unmanaged(Address address, std::uint64_t bytes) {
    lower(table_registry().begin, address);
    raise(table_registry().end, address + bytes);
}

void note_freed(Address address, std::uint64_t bytes) {
    TableRegistry& all = table_registry();
    if (!table_words_seen.load()) return;
    const util::Lock lock(all.mutex);
    all.words.overwrite(address, bytes, {});
}

void note_handle_unmapped(CUmemGenericAllocationHandle handle, std::uint64_t offset, Address address,
                          std::uint64_t bytes) {
    TableRegistry& all = table_registry();
    if (!table_words_seen.load()) return;
    const util::Lock lock(all.mutex);
    auto parked = all.parked.find(handle);
    if (parked == all.parked.end()) {
        if (!all.words.any_in(address, bytes)) return;
        parked = all.parked.emplace(handle, kNobodys + all.ever_parked++ % kParked * kMostOfHandle).first;
    }
    move_words(all, parked->second + offset, address, bytes);
}

void note_handle_mapped(CUmemGenericAllocationHandle handle, std::uint64_t offset, Address address,
                        std::uint64_t bytes) {
    TableRegistry& all = table_registry();
    if (!table_words_seen.load()) return;
    const util::Lock lock(all.mutex);
    const auto parked = all.parked.find(handle);
    if (parked == all.parked.end()) return;
    const bool any = all.words.any_in(parked->second + offset, bytes);
    move_words(all, address, parked->second + offset, bytes);
    if (any && !session::session_at(address)) enter_region(all, {address, address + bytes});
}

void note_handle_given(CUmemGenericAllocationHandle handle) {
    TableRegistry& all = table_registry();
    if (!table_words_seen.load()) return;
    const util::Lock lock(all.mutex);
    const auto parked = all.parked.find(handle);
    if (parked == all.parked.end()) return;
    all.words.overwrite(parked->second, kMostOfHandle, {});
    all.parked.erase(parked);
}

void note_variable(Address address, std::uint64_t bytes, std::span<const void* const> owners) {
    TableRegistry& all = table_registry();
    const util::Lock lock(all.mutex);
    Region& region = enter_region(all, {address, address + bytes});
    for (const void* owner : owners) {
        if (std::ranges::count(region.owners, owner) > 0) continue;
        region.owners.push_back(owner);
        all.variables.emplace(owner, address);
    }
    table_variables_seen = true;
}

std::vector<KnownRegion> forget_variables(const void* owner) {
    TableRegistry& all = table_registry();
    if (!table_variables_seen.load()) return {};
    std::vector<KnownRegion> known;
    const util::Lock lock(all.mutex);
    for (auto it = all.variables.find(owner); it != all.variables.end(); it = all.variables.find(owner))
        known.push_back(take_region(all, all.regions.find(it->second)));
    return known;
}

std::optional<KnownRegion> forget_memory(Address address) {
    TableRegistry& all = table_registry();
    if (!table_words_seen.load()) return std::nullopt;
    const util::Lock lock(all.mutex);
    const auto it = all.regions.find(address);
    if (it == all.regions.end()) return std::nullopt;
    return take_region(all, it);
}

void region_stays(const KnownRegion& known) {
    if (!known.owners.empty()) note_variable(known.address, known.bytes, known.owners);
    TableRegistry& all = table_registry();
    const util::Lock lock(all.mutex);
    enter_region(all, {known.address, known.address + known.bytes}).copied_into |= known.copied_into;
    all.words.add(known.words);
}

session::Bounds table_bounds() {
    const Address end = table_registry().end.load();
    return end == 0 ? session::Bounds{} : session::Bounds{table_registry().begin.load(), end};
}

bool names_managed(const session::WorkingSet& reach) {
    const auto is_managed = [](Address address) { return session::session_at(address) != nullptr; };
    return std::ranges::any_of(reach.addresses, is_managed) ||
           std::ranges::any_of(reach.only_read, is_managed);
}

bool any_has_variables(std::span<const void* const> owners) {
    TableRegistry& all = table_registry();
    if (!table_variables_seen.load()) return false;
    const util::Lock lock(all.mutex);
    return std::ranges::any_of(
        owners, [&](const void* owner) LMS_REQUIRES(all.mutex) { return all.variables.contains(owner); });
}

void follow_tables(session::WorkingSet& reach) {
    TableRegistry& all = table_registry();
    if (!any_tables()) return;
    const util::Lock lock(all.mutex);
    const bool names_memory = names_managed(reach);
    for (const void* owner : reach.owners) {
        const auto [first, last] = all.variables.equal_range(owner);
        for (auto it = first; it != last; ++it) {
            reach.addresses.push_back(it->second);
            reach.opaque |= all.regions.at(it->second).copied_into;
            // It works on something, and its module has variables to find that by.
            reach.opaque |= reach.unseen && !names_memory;
        }
    }
    const auto extent = [&](Address address) LMS_REQUIRES(all.mutex) { return extent_of(all, address); };
    all.words.close_over(reach.addresses, extent);
    // Of what a table names nobody knows whether it is written.
    auto tables = reach.only_read;
    all.words.close_over(tables, extent);
    reach.addresses.insert(reach.addresses.end(),
                           tables.begin() + static_cast<std::ptrdiff_t>(reach.only_read.size()),
                           tables.end());
}

}  // namespace lms::access

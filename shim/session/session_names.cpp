// Which buffers and chunks an address or a range means.
#include <algorithm>
#include <utility>

#include "shim/program/fast_path.h"
#include "shim/program/memory_changes.h"
#include "shim/session/session.h"
#include "shim/util/mutex.h"

namespace lms::session {

using engine::ChunkId;

namespace {

// A guard gap of one granule is before and after each buffer (Core::arena). Between two buffers it belongs
// half to each, else all of it to the one there is.
std::optional<engine::AllocationId> allocation_near(const executor::Core& core,
                                                    engine::Address address) LMS_LOCKED {
    const engine::Residency& residency = core.residency;
    if (const auto id = residency.allocation_at(address)) return id;
    const auto before = residency.allocation_at(address - core.granularity);
    const auto after = residency.allocation_at(address + core.granularity);
    const bool lower_half = address % core.granularity < core.granularity / 2;
    return before && (lower_half || !after) ? before : after;
}

// What the program has mapped around `address`, or `near` it.
std::optional<Buffer> run_at(engine::Address address, std::uint64_t near) {
    const util::SharedLock lock(program::program_addresses().mutex);
    const program::AddressRange run = program::program_addresses().book.run_at(address, near);
    if (run.end == 0) return std::nullopt;
    return Buffer{run.begin, run.end - run.begin, nullptr};
}

// Whether the program has mapped all of a range, and somebody may reach it there.
bool program_can_use(engine::Address address, std::uint64_t bytes) {
    if (address + bytes < address) return false;
    const util::SharedLock lock(program::program_addresses().mutex);
    engine::Address at = address;
    for (const program::View& view : program::program_addresses().book.in(address, bytes)) {
        const auto reaches = [](const CUmemAccessDesc& access) {
            return access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        };
        if (view.address > at || (view.is_managed() && std::ranges::none_of(view.access, reaches)))
            return false;
        at = view.end();
    }
    return at >= address + bytes;
}

}  // namespace

std::optional<Buffer> Session::buffer_at(engine::Address address) {
    if (!spans(address)) return run_at(address, 0);
    const executor::SessionLock lock(core_->mutex);
    const auto id = core_->residency.allocation_at(address);
    if (!id) return std::nullopt;
    const engine::Allocation& buffer = core_->residency.allocation(*id);
    return Buffer{buffer.address, buffer.asked_bytes, core_->owners[*id], buffer.serial};
}

bool Session::holds(engine::Address address, std::uint64_t bytes) {
    if (!padded_.load() && program::fast_path_gate.is_open()) return true;
    if (!spans(address)) [[unlikely]]
        return program_can_use(address, bytes);
    const executor::SessionLock lock(core_->mutex);
    const auto id = core_->residency.allocation_at(address);
    if (!id) return false;
    const engine::Allocation& buffer = core_->residency.allocation(*id);
    const std::uint64_t offset = address - buffer.address;
    return offset <= buffer.asked_bytes && bytes <= buffer.asked_bytes - offset;
}

std::optional<Buffer> Session::buffer_near(engine::Address address) {
    if (!spans(address)) return run_at(address, core_->granularity);
    const executor::SessionLock lock(core_->mutex);
    const auto id = allocation_near(*core_, address);
    if (!id) return std::nullopt;
    return Buffer{core_->residency.allocation(*id).address, core_->residency.allocation(*id).bytes,
                  core_->owners[*id]};
}

namespace {

// Collects needs, each chunk once. Needs the session's lock all the while.
class Naming {
  public:
    // `names`: how many pointers there will be.
    Naming(executor::Core& core, NamingScratch& scratch, std::size_t names,
           std::pmr::vector<ChunkRequest>& needs) LMS_LOCKED : core_(core),
                                                               scratch_(scratch),
                                                               needs_(needs) {
        core.mutex.check_held();
        ++scratch.namings;
        if (scratch.named.size() < core.backing.size()) scratch.named.resize(core.backing.size());
        needs.reserve(std::max(kFew, kFewChunks * names));
    }

    bool has_large() const { return has_large_; }

    // What is only read comes after what is not, so that it is known by then.
    void whole_buffer(engine::Address address, bool written) LMS_LOCKED {
        const engine::Residency& residency = core_.residency;
        const auto id = allocation_near(core_, address);
        // Nothing submitted after a buffer's free uses it; the address was left over.
        if (!id || residency.allocation(*id).dead) return;
        const engine::Allocation& buffer = residency.allocation(*id);
        const std::uint64_t offset = address - buffer.address;
        // What is meant by a pointer from outside is not told by where others begin.
        if (in_parts(buffer) && offset < buffer.bytes) {
            const std::uint64_t end =
                core_.large.parts.end_of(buffer.bytes, offset, buffer.bytes, core_.engine.works());
            return part(buffer, {address, buffer.address + end}, written, ++parts_);
        }
        if (!known(buffer.chunks.front())) {
            for (const ChunkId chunk : buffer.chunks) add(chunk, false, written, false);
        } else if (in_parts(buffer)) {
            part(buffer, {buffer.address, buffer.address + buffer.bytes}, written, 0);
        }
    }

    // All that begins somewhere, before any of it is named.
    void begins(engine::Address address) LMS_LOCKED {
        const auto id = core_.residency.allocation_at(address);
        if (!id || !in_parts(core_.residency.allocation(*id))) return;
        const engine::Allocation& buffer = core_.residency.allocation(*id);
        core_.large.parts.begins(buffer.bytes, address - buffer.address, core_.engine.works());
    }
    // The same of what the program has mapped, whose reservation is divided.
    void begins_in_view(engine::Address address) LMS_LOCKED {
        const util::SharedLock lock(program::program_addresses().mutex);
        if (const auto all = program::program_addresses().book.reservation_of(address))
            core_.large.parts.begins(all->begin, address - all->begin, core_.engine.works());
    }

    // Whole buffers are named before.
    void range(const Range& range) LMS_LOCKED {
        const engine::Residency& residency = core_.residency;
        std::vector<ChunkId> chunks;
        residency.chunks_in(range.address, range.bytes, chunks);
        const std::uint32_t ordinal = ++parts_;
        for (const ChunkId id : chunks) {
            const engine::Chunk& chunk = residency.chunk(id);
            const engine::Allocation& buffer = residency.allocation(chunk.allocation);
            if (buffer.dead) continue;
            const bool whole =
                range.address <= chunk.address && chunk.address + chunk.bytes <= range.address + range.bytes;
            if (const NamingScratch::Named* const before = known(id)) {
                ChunkRequest& need = needs_[before->index];
                need.overwritten = need.aside = false;  // named twice: once it is read
                need.may_stay &= range.may_stay;
                need.written |= !range.only_read;
                need.unread = need.unread && range.overwritten;
            } else {
                ChunkRequest& need =
                    needs_[add(id, range.overwritten && whole, !range.only_read, range.may_stay)];
                need.unread = range.overwritten;
                if (in_parts(buffer)) need.part = ordinal;
            }
        }
    }

    // What the program has mapped of this GPU's: by the name that it has here.
    void views_at(std::span<const engine::Address> pointers, bool written) LMS_LOCKED {
        const util::SharedLock lock(program::program_addresses().mutex);
        for (const engine::Address pointer : pointers) {
            if (core_.arena.contains(pointer)) continue;
            const program::AddressRange run =
                program::program_addresses().book.run_at(pointer, core_.granularity);
            program::AddressRange meant = run;
            std::uint32_t ordinal = 0;
            const auto all = program::program_addresses().book.reservation_of(pointer);
            if (all && pointer - run.begin < run.end - run.begin &&
                executor::is_large(core_, run.end - run.begin)) {
                const std::uint64_t end = core_.large.parts.end_of(
                    all->begin, pointer - all->begin, run.end - all->begin, core_.engine.works());
                meant = {pointer, all->begin + end};
                ordinal = ++parts_;
            }
            program::program_addresses().book.each_of_run(pointer, core_.granularity,
                                                          [&](const program::View& view) LMS_LOCKED {
                                                              if (is_here(view))
                                                                  part_of_view(view, meant, written, ordinal);
                                                          });
        }
    }
    void views_in(const Range& all) LMS_LOCKED {
        const util::SharedLock lock(program::program_addresses().mutex);
        for (const program::View& view : program::program_addresses().book.in(all.address, all.bytes)) {
            if (!is_here(view)) continue;
            const engine::Address begin = std::max(all.address, view.address);
            const engine::Address end = std::min(all.address + all.bytes, view.end());
            range({view.home + (begin - view.address), end - begin, all.overwritten, all.may_stay,
                   all.only_read});
        }
    }

  private:
    // What most work names, and what most buffers have, for which there is room at once.
    static constexpr std::size_t kFew = 8, kFewChunks = 2;

    // Whether to bring in only what a pointer is thought to mean: the rest of a buffer that takes more than
    // its share of the GPU would push out what other work needs.
    bool in_parts(const engine::Allocation& buffer) const LMS_LOCKED {
        return has_large_ && executor::is_large(core_, buffer.bytes);
    }
    // What a pointer means of a buffer. The rest is held where it is, for the pointer may lead there.
    // `ordinal`: ChunkRequest::part.
    void part(const engine::Allocation& buffer, program::AddressRange meant, bool written,
              std::uint32_t ordinal) LMS_LOCKED {
        if (!known(buffer.chunks.front())) {
            for (const ChunkId chunk : buffer.chunks) needs_[add(chunk, false, written, false)].aside = true;
        }
        std::vector<ChunkId> chunks;
        core_.residency.chunks_in(meant.begin, meant.end - meant.begin, chunks);
        for (const ChunkId chunk : chunks) {
            // Of a mapping whose handle has just become the driver's, others may lie there by now.
            const NamingScratch::Named* const named = known(chunk);
            if (!named) continue;
            ChunkRequest& need = needs_[named->index];
            need.aside = false;
            if (need.part == 0) need.part = ordinal;
        }
    }
    void part_of_view(const program::View& view, program::AddressRange meant, bool written,
                      std::uint32_t ordinal) LMS_LOCKED {
        const auto id = core_.residency.allocation_at(view.home);
        if (!id || core_.residency.allocation(*id).dead) return;
        const engine::Address begin = std::clamp(meant.begin, view.address, view.end());
        const engine::Address end = std::clamp(meant.end, begin, view.end());
        part(core_.residency.allocation(*id),
             {view.home + (begin - view.address), view.home + (end - view.address)}, written, ordinal);
    }

    bool is_here(const program::View& view) const { return view.is_managed() && view.device == core_.device; }
    const NamingScratch::Named* known(ChunkId id) const LMS_LOCKED {
        const NamingScratch::Named& named = scratch_.named[id];
        return named.naming == scratch_.namings ? &named : nullptr;
    }
    [[gnu::always_inline]] std::size_t add(ChunkId id, bool overwritten, bool written,
                                           bool may_stay) LMS_LOCKED {
        scratch_.named[id] = {scratch_.namings, needs_.size()};
        needs_.push_back({id, core_.residency.chunk(id).serial, overwritten, written, may_stay});
        return needs_.size() - 1;
    }

    executor::Core& core_;
    NamingScratch& scratch_;
    std::pmr::vector<ChunkRequest>& needs_;
    std::uint32_t parts_ = 0;  // pointers into large buffers so far
    const bool has_large_ = executor::is_large(core_, core_.large.largest_bytes);
};

constexpr std::size_t kMeanings = 256;
constexpr std::size_t kMostNeeds = 64;  // of one that is kept

// Where the meaning of these addresses is or will be; null where something has just come or gone.
NamingScratch::Meaning* meaning_of(NamingScratch& scratch, std::span<const engine::Address> addresses,
                                   std::span<const engine::Address> only_read) {
    const std::uint64_t changes = program::memory_changes.load();
    if (std::exchange(scratch.changes, changes) != changes) return nullptr;
    std::uint64_t hash = addresses.size();
    for (const auto& named : {addresses, only_read}) {
        for (const engine::Address address : named) hash = (hash ^ address) * 0x9E3779B97F4A7C15;
    }
    scratch.meanings.resize(kMeanings);
    return &scratch.meanings[(hash >> 32) % kMeanings];
}

bool is_known(const NamingScratch::Meaning& meaning, std::uint64_t changes,
              std::span<const engine::Address> addresses, std::span<const engine::Address> only_read) {
    const std::span all(meaning.addresses);
    return meaning.changes == changes && meaning.written == addresses.size() &&
           all.size() == addresses.size() + only_read.size() &&
           std::ranges::equal(all.first(addresses.size()), addresses) &&
           std::ranges::equal(all.subspan(addresses.size()), only_read);
}

}  // namespace

void Session::name(std::span<const engine::Address> addresses, std::span<const Range> ranges,
                   std::pmr::vector<ChunkRequest>& needs) {
    const executor::SessionLock lock(core_->mutex);
    find(addresses, {}, ranges, needs);
}

void Session::find(std::span<const engine::Address> addresses, std::span<const engine::Address> only_read,
                   std::span<const Range> ranges, std::pmr::vector<ChunkRequest>& needs) {
    const bool views = program::managed_views.load(std::memory_order_relaxed);
    const bool whole = addresses.size() + only_read.size() > 0 && ranges.empty() && !views &&
                       !executor::is_large(*core_, core_->large.largest_bytes);
    NamingScratch::Meaning* const meaning = whole ? meaning_of(scratch_, addresses, only_read) : nullptr;
    // Of a buffer that is freed since then nothing is held (gone()).
    if (meaning && is_known(*meaning, scratch_.changes, addresses, only_read)) {
        needs.assign(meaning->needs.begin(), meaning->needs.end());
        return;
    }
    Naming naming(*core_, scratch_, addresses.size() + only_read.size(), needs);
    const auto begins = [&](engine::Address address) LMS_LOCKED {
        if (spans(address)) {
            if (naming.has_large()) naming.begins(address);
        } else if (views) {
            naming.begins_in_view(address);
        }
    };
    if (naming.has_large() || views) {
        for (const auto& named : {addresses, only_read}) std::ranges::for_each(named, begins);
        for (const Range& range : ranges) begins(range.address);
    }
    for (const bool written : {true, false}) {
        const std::span<const engine::Address> named = written ? addresses : only_read;
        for (const engine::Address address : named) naming.whole_buffer(address, written);
        if (views) naming.views_at(named, written);
    }
    const engine::Arena& arena = core_->arena;
    for (const Range& range : ranges) {
        Range own = range;
        own.address = std::clamp(range.address, arena.begin(), arena.end());
        const std::uint64_t before = range.address < own.address ? own.address - range.address : 0;
        own.bytes = std::min(range.bytes - std::min(range.bytes, before), arena.end() - own.address);
        if (own.bytes > 0) naming.range(own);
        if (views && own.bytes < range.bytes) naming.views_in(range);
    }
    if (!meaning || needs.size() > kMostNeeds) return;
    meaning->changes = scratch_.changes;
    meaning->written = addresses.size();
    meaning->addresses.assign(addresses.begin(), addresses.end());
    meaning->addresses.insert(meaning->addresses.end(), only_read.begin(), only_read.end());
    meaning->needs.assign(needs.begin(), needs.end());
}

}  // namespace lms::session

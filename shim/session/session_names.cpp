// Which buffers and chunks an address or a range means.
#include <algorithm>

#include "shim/session/session.h"
#include "shim/util/mutex.h"

namespace lms::engine {

using core::ChunkId;

namespace {

// A guard gap of one granule is before and after each buffer (State::arena). Between two buffers it belongs
// half to each, else all of it to the one there is.
std::optional<core::AllocationId> allocation_near(const State& state, core::Address address) {
    const core::Residency& residency = state.residency;
    if (const auto id = residency.allocation_at(address)) return id;
    const auto before = residency.allocation_at(address - state.granularity);
    const auto after = residency.allocation_at(address + state.granularity);
    const bool lower_half = address % state.granularity < state.granularity / 2;
    return before && (lower_half || !after) ? before : after;
}

// What the program has mapped around `address`, or `near` it.
std::optional<Buffer> run_at(core::Address address, std::uint64_t near) {
    const util::SharedLock lock(program_addresses().mutex);
    const AddressRange run = program_addresses().book.run_at(address, near);
    if (run.end == 0) return std::nullopt;
    return Buffer{run.begin, run.end - run.begin, nullptr};
}

// Whether the program has mapped all of a range, and somebody may reach it there.
bool program_can_use(core::Address address, std::uint64_t bytes) {
    if (address + bytes < address) return false;
    const util::SharedLock lock(program_addresses().mutex);
    core::Address at = address;
    for (const View& view : program_addresses().book.in(address, bytes)) {
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

std::optional<Buffer> Session::buffer_at(core::Address address) {
    if (!spans(address)) return run_at(address, 0);
    const SessionLock lock(state_->mutex);
    const auto id = state_->residency.allocation_at(address);
    if (!id) return std::nullopt;
    const core::Allocation& buffer = state_->residency.allocation(*id);
    return Buffer{buffer.address, buffer.asked_bytes, state_->owners[*id], buffer.serial};
}

bool Session::holds(core::Address address, std::uint64_t bytes) {
    if (!padded_.load() && !state_->under_pressure.load()) return true;
    if (!spans(address)) [[unlikely]]
        return program_can_use(address, bytes);
    const SessionLock lock(state_->mutex);
    const auto id = state_->residency.allocation_at(address);
    if (!id) return false;
    const core::Allocation& buffer = state_->residency.allocation(*id);
    const std::uint64_t offset = address - buffer.address;
    return offset <= buffer.asked_bytes && bytes <= buffer.asked_bytes - offset;
}

std::optional<Buffer> Session::buffer_near(core::Address address) {
    if (!spans(address)) return run_at(address, state_->granularity);
    const SessionLock lock(state_->mutex);
    const auto id = allocation_near(*state_, address);
    if (!id) return std::nullopt;
    return Buffer{state_->residency.allocation(*id).address, state_->residency.allocation(*id).bytes,
                  state_->owners[*id]};
}

namespace {

// Collects needs, each chunk once. Needs the session's lock all the while.
class Naming {
  public:
    Naming(State& state, std::pmr::vector<ChunkRequest>& needs) : state_(state), needs_(needs) {
        state.mutex.check_held();
        ++state.namings;
        state.named.resize(state.backing.size());
        needs.reserve(kFew);
    }

    // What is only read comes after what is not, so that it is known by then.
    void whole_buffer(core::Address address, bool written) {
        const core::Residency& residency = state_.residency;
        const auto id = allocation_near(state_, address);
        // Nothing submitted after a buffer's free uses it; the address was left over.
        if (!id || residency.allocation(*id).dead) return;
        const std::vector<ChunkId>& chunks = residency.allocation(*id).chunks;
        if (known(chunks.front())) return;
        for (const ChunkId chunk : chunks) add(chunk, false, written, false);
    }

    // Whole buffers are named before.
    void range(const Range& range) {
        const core::Residency& residency = state_.residency;
        std::vector<ChunkId> chunks;
        residency.chunks_in(range.address, range.bytes, chunks);
        for (const ChunkId id : chunks) {
            const core::Chunk& chunk = residency.chunk(id);
            if (residency.allocation(chunk.allocation).dead) continue;
            const bool whole =
                range.address <= chunk.address && chunk.address + chunk.bytes <= range.address + range.bytes;
            if (const State::Named* const before = known(id)) {
                ChunkRequest& need = needs_[before->index];
                need.overwritten = false;  // named twice: once it is read
                need.may_stay &= range.may_stay;
                need.written |= !range.only_read;
            } else {
                add(id, range.overwritten && whole, !range.only_read, range.may_stay);
            }
        }
    }

    // What the program has mapped of this GPU's: by the name that it has here.
    void views_at(std::span<const core::Address> pointers, bool written) {
        const util::SharedLock lock(program_addresses().mutex);
        for (const core::Address pointer : pointers) {
            if (state_.arena.contains(pointer)) continue;
            program_addresses().book.each_of_run(pointer, state_.granularity, [&](const View& view) {
                if (is_here(view)) whole_buffer(view.home, written);
            });
        }
    }
    void views_in(const Range& all) {
        const util::SharedLock lock(program_addresses().mutex);
        for (const View& view : program_addresses().book.in(all.address, all.bytes)) {
            if (!is_here(view)) continue;
            const core::Address begin = std::max(all.address, view.address);
            const core::Address end = std::min(all.address + all.bytes, view.end());
            range({view.home + (begin - view.address), end - begin, all.overwritten, all.may_stay,
                   all.only_read});
        }
    }

  private:
    // What most work names, for which there is room at once.
    static constexpr std::size_t kFew = 8;

    bool is_here(const View& view) const { return view.is_managed() && view.device == state_.device; }
    const State::Named* known(ChunkId id) const {
        const State::Named& named = state_.named[id];
        return named.naming == state_.namings ? &named : nullptr;
    }
    void add(ChunkId id, bool overwritten, bool written, bool may_stay) {
        state_.named[id] = {state_.namings, needs_.size()};
        needs_.push_back({id, state_.residency.chunk(id).serial, overwritten, written, may_stay});
    }

    State& state_;
    std::pmr::vector<ChunkRequest>& needs_;
};

}  // namespace

void Session::name(std::span<const core::Address> addresses, std::span<const Range> ranges,
                   std::pmr::vector<ChunkRequest>& needs) {
    const SessionLock lock(state_->mutex);
    find(addresses, {}, ranges, needs);
}

void Session::find(std::span<const core::Address> addresses, std::span<const core::Address> only_read,
                   std::span<const Range> ranges, std::pmr::vector<ChunkRequest>& needs) {
    Naming naming(*state_, needs);
    const bool views = managed_views.load(std::memory_order_relaxed);
    for (const bool written : {true, false}) {
        const std::span<const core::Address> named = written ? addresses : only_read;
        for (const core::Address address : named) naming.whole_buffer(address, written);
        if (views) naming.views_at(named, written);
    }
    for (const Range& range : ranges) {
        if (spans(range.address)) {
            naming.range(range);
        } else if (views) {
            naming.views_in(range);
        }
    }
}

}  // namespace lms::engine

// Which buffers and chunks an address or a range means.
#include <algorithm>

#include "shim/session/session.h"

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

}  // namespace

std::optional<Buffer> Session::buffer_at(core::Address address) {
    const std::lock_guard lock(state_->mutex);
    const auto id = state_->residency.allocation_at(address);
    if (!id) return std::nullopt;
    const core::Allocation& buffer = state_->residency.allocation(*id);
    return Buffer{buffer.address, buffer.asked_bytes, state_->owners[*id], buffer.serial};
}

bool Session::holds(core::Address address, std::uint64_t bytes) {
    if (!padded_.load() && !state_->under_pressure.load()) return true;
    const std::lock_guard lock(state_->mutex);
    const auto id = state_->residency.allocation_at(address);
    if (!id) return false;
    const core::Allocation& buffer = state_->residency.allocation(*id);
    const std::uint64_t offset = address - buffer.address;
    return offset <= buffer.asked_bytes && bytes <= buffer.asked_bytes - offset;
}

std::optional<Buffer> Session::buffer_near(core::Address address) {
    const std::lock_guard lock(state_->mutex);
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
        ++state.namings;
        state.named.resize(state.backing.size());
    }

    void whole_buffer(core::Address address) {
        const core::Residency& residency = state_.residency;
        const auto id = allocation_near(state_, address);
        // Nothing submitted after a buffer's free uses it; the address was left over.
        if (!id || residency.allocation(*id).dead) return;
        const std::vector<ChunkId>& chunks = residency.allocation(*id).chunks;
        if (known(chunks.front())) return;
        for (const ChunkId chunk : chunks) add(chunk, false, false);
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
            } else {
                add(id, range.overwritten && whole, range.may_stay);
            }
        }
    }

  private:
    const State::Named* known(ChunkId id) const {
        const State::Named& named = state_.named[id];
        return named.naming == state_.namings ? &named : nullptr;
    }
    void add(ChunkId id, bool overwritten, bool may_stay) {
        state_.named[id] = {state_.namings, needs_.size()};
        needs_.push_back({id, state_.residency.chunk(id).serial, overwritten, may_stay});
    }

    State& state_;
    std::pmr::vector<ChunkRequest>& needs_;
};

}  // namespace

void Session::name(std::span<const core::Address> addresses, std::span<const Range> ranges,
                   std::pmr::vector<ChunkRequest>& needs) {
    const std::lock_guard lock(state_->mutex);
    Naming naming(*state_, needs);
    for (const core::Address address : addresses) naming.whole_buffer(address);
    for (const Range& range : ranges) {
        if (spans(range.address)) naming.range(range);
    }
}

}  // namespace lms::engine

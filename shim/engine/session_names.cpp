// Which buffers and chunks an address or a range means.
#include <algorithm>

#include "shim/engine/session.h"

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

void Session::name(std::span<const core::Address> addresses, std::pmr::vector<Need>& needs) {
    const std::lock_guard lock(state_->mutex);
    const core::Residency& residency = state_->residency;
    std::pmr::vector<core::AllocationId> named(needs.get_allocator());
    named.reserve(addresses.size());
    for (const core::Address address : addresses) {
        const auto id = allocation_near(*state_, address);
        if (!id || std::find(named.begin(), named.end(), *id) != named.end()) continue;
        named.push_back(*id);
        const core::Allocation& buffer = residency.allocation(*id);
        // Nothing submitted after a buffer's free uses it; the address was left over.
        if (buffer.dead) continue;
        needs.reserve(needs.size() + buffer.chunks.size());
        for (const ChunkId chunk : buffer.chunks) needs.push_back({chunk, residency.chunk(chunk).serial});
    }
}

void Session::name_range(core::Address address, std::uint64_t bytes, bool overwritten,
                         std::pmr::vector<Need>& needs, bool may_stay) {
    const std::lock_guard lock(state_->mutex);
    const core::Residency& residency = state_->residency;
    std::vector<ChunkId> chunks;
    residency.chunks_in(address, bytes, chunks);
    for (const ChunkId id : chunks) {
        const core::Chunk& chunk = residency.chunk(id);
        if (residency.allocation(chunk.allocation).dead) continue;
        const bool whole = address <= chunk.address && chunk.address + chunk.bytes <= address + bytes;
        const auto it =
            std::find_if(needs.begin(), needs.end(), [&](const Need& need) { return need.chunk == id; });
        if (it == needs.end()) {
            needs.push_back({id, chunk.serial, overwritten && whole, may_stay});
        } else {
            it->overwritten = false;  // named twice: once it is read
            it->may_stay &= may_stay;
        }
    }
}

}  // namespace lms::engine

#include "shim/migration/retained_copies.h"

#include <iterator>
#include <utility>

#include "shim/migration/page_in.h"

namespace lms::engine {

using core::ChunkId;

namespace {

// Nothing reads it, and nobody counts on it.
bool is_spare(const State& state, ChunkId id) {
    return state.residency.chunk(id).state == core::State::Resident;
}

}  // namespace

bool may_be_clean(State& state) {
    return state.settings.asks_what_is_written() && !unseen_busy(state);
}

void retain_copy(State& state, ChunkId id) {
    state.mutex.check_held();
    state.residency.clean(id);
    state.retained.emplace(state.residency.chunk(id).bytes, id);
}

std::optional<Block> take_copy(State& state, ChunkId id) {
    state.mutex.check_held();
    if (!state.residency.chunk(id).clean) return std::nullopt;
    state.residency.soil(id);
    state.retained.erase({state.residency.chunk(id).bytes, id});
    return state.backing[id].host;
}

void drop_copy(State& state, ChunkId id) {
    const auto copy = take_copy(state, id);
    // While it fills, that reads the copy; at its end it is given back (poll_completions).
    if (!copy || state.residency.chunk(id).state == core::State::Filling) return;
    state.residency.cancel_out(id);
    state.host_blocks.put(*copy);
}

void drop_copies(State& state) {
    ++state.soilings;
    for (const auto& [bytes, id] : std::exchange(state.retained, {})) drop_copy(state, id);
}

bool spare_copy(State& state, std::uint64_t bytes) {
    for (auto it = state.retained.lower_bound({bytes, 0}); it != state.retained.end() && it->first == bytes;
         ++it) {
        if (!is_spare(state, it->second)) continue;
        drop_copy(state, it->second);
        return true;
    }
    return false;
}

bool spare_copies(State& state, std::uint64_t bytes) {
    // Largest first: fewest chunks.
    for (auto it = state.retained.end();
         it != state.retained.begin() && state.host_blocks.free_bytes() < bytes;) {
        const ChunkId id = std::prev(it)->second;
        if (is_spare(state, id)) {
            drop_copy(state, id);
        } else {
            --it;
        }
    }
    return state.host_blocks.free_bytes() >= bytes;
}

}  // namespace lms::engine

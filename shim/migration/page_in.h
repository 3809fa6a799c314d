// Chunks in, carried out: what work needs, and device memory in under it. (Out: migration/eviction.h.)
#pragma once

#include <span>

#include "shim/migration/session_lock.h"
#include "shim/migration/state.h"

namespace lms::engine {

struct ChunkRequest {
    core::ChunkId chunk;
    // The chunk's own: what was named by a stale address may be freed, and its number given again, before it
    // is held.
    std::uint64_t serial;
    // The work writes all of it and reads none: contents that nobody has given it yet need not come in. Those
    // that somebody has do: when the work will run is not known, nor whether it is refused, and until then
    // other work may read them.
    bool overwritten = false;
    // The work may write it.
    bool written = true;
    // The work may as well use it where it is in host memory: it waits for the host anyway.
    bool may_stay = false;
    // The work may reach it, but is not thought to (core/parts.h): it is not brought in, and nobody is told
    // that it was used. What moves must wait for the work all the same. Only where host memory can be used in
    // place.
    bool aside = false;
    // The work writes some of it, for certain, and reads none. (Where the next is, so that launches have no
    // more to copy.)
    bool unread : 1 = false;
    // Which of the work's pointers into large buffers means it, counted from 1; 0: none
    // (migration/large_buffers.h).
    std::uint32_t part : 31 = 0;

    bool wants_in() const { return !may_stay && !aside; }
};

// Whether its buffer has been freed, or is about to go: a stale address named it, and holding it would hold
// up the free.
inline bool gone(const ChunkRequest& need, const core::Residency& residency) {
    const core::Chunk& chunk = residency.chunk(need.chunk);
    return chunk.serial != need.serial || residency.allocation(chunk.allocation).dead;
}

// They are the most recently used now, though no work names them.
inline void touch(State& state, std::span<const ChunkRequest> needs) {
    for (const ChunkRequest& need : needs) {
        if (!gone(need, state.residency)) state.residency.touch(need.chunk);
    }
}

// A chunk to come in, and the block it gets; the block goes back to the pool if it cannot.
struct PageIn {
    ChunkRequest need;
    Block block;
};

enum class Outcome {
    Moved,      // at least one
    Cancelled,  // other work came in between; trying again may do
    Failed,     // the driver refused
};

// Both need `lock`, the session's.

// Maps the blocks and enqueues the copies; does not wait for them. Only for the migrator whose turn it is;
// drops the lock around driver calls.
Outcome page_in(State& state, std::span<const PageIn> fills, SessionLock& lock);

// Whether work that may reach any chunk is unfinished or about to be submitted; or such as may write one that
// it does not name, though moves go on beside it.
bool opaque_busy(State& state);
bool unseen_busy(State& state);

// Backing::fresh_at of a chunk that gets host memory now. Work that is unfinished may yet be told its
// address, as through memory that the host writes.
std::uint64_t fresh_now(State& state);

}  // namespace lms::engine

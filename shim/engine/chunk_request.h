// What a piece of work asks of the engine, and what it holds of it.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "shim/engine/residency.h"

namespace lms::engine {

// A chunk that work names.
struct ChunkRequest {
    ChunkId chunk;
    // The chunk's own: what was named by a stale address may be freed, and its number given again, before it
    // is held.
    std::uint64_t serial;
    // The work writes all of it and reads none: contents that no work has given it yet need not come in.
    // Those that some work has do: when this work will run is not known, nor whether it is refused, and until
    // then other work may read them.
    bool overwritten = false;
    // The work may write it.
    bool written = true;
    // The work may as well use it where it is in host memory: it waits for the host anyway.
    bool may_stay = false;
    // The work may reach it, but is not thought to (engine/parts.h): it is not brought in, and the policy
    // does not learn of a use. Moves must wait for the work all the same. Only where host memory can be used
    // in place.
    bool aside = false;
    // The work writes some of it, for certain, and reads none. (Where the next is, so that launches have no
    // more to copy.)
    bool unread : 1 = false;
    // Which of the work's pointers into large buffers means it, counted from 1; 0: none
    // (executor/large_buffers.h).
    std::uint32_t part : 31 = 0;

    bool wants_in() const { return !may_stay && !aside; }
};

// Whether its buffer has been freed, or is about to go: a stale address named it, and holding it would hold
// up the free.
inline bool gone(const ChunkRequest& need, const Residency& residency) {
    const Chunk& chunk = residency.chunk(need.chunk);
    return chunk.serial != need.serial || residency.allocation(chunk.allocation).dead;
}

// Whether its buffer is there, if only until its stream has come to its free: it may be given out again until
// then.
inline bool is_there(const ChunkRequest& need, const Residency& residency) {
    return residency.chunk(need.chunk).serial == need.serial;
}

// What a piece of work holds between acquire() and submitted().
struct ChunkPins {
    explicit ChunkPins(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
        : pinned(memory), in_place(memory) {}

    std::pmr::vector<ChunkId> pinned;
    std::pmr::vector<ChunkId> in_place;  // used where they are, in host memory
    std::string_view kernel;             // whose it is, where a trace is written
    Use fill{};                          // the copy in that it waits for; finished: none
    bool opaque = false;
    bool unseen = false;  // may write what it does not name, though moves go on beside it
    bool fenced =
        false;  // leaves a fence whatever it holds: for earlier work of its stream (executor/pressure.h)
};

}  // namespace lms::engine

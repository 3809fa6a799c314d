// Host copies of chunks that are on the device, kept for as long as nothing may have written these: a clean
// chunk (core/chunk.h) is evicted without a copy.
//
// What is submitted may run at once, and in any order with what was submitted before: a chunk stops being
// clean when work that may write it is about to be submitted, and becomes it only by coming in, when nothing
// that may write it is unfinished. Work that names a chunk is unfinished to it (Chunk::uses); work that may
// write what it does not name is unfinished to all.
#pragma once

#include <cstdint>
#include <optional>

#include "shim/migration/blocks.h"
#include "shim/migration/state.h"

namespace lms::engine {

// All need the session's lock.

// Whether what begins to come in now may be clean. Only where every kernel is looked at
// (LMS_SAFETY=opaque), and while none is unfinished that may write what it does not name.
bool may_be_clean(State& state);

// The chunk, which has begun to fill, is clean.
void retain_copy(State& state, core::ChunkId id);
// It may be written, or goes: its copy is given back, once nothing reads it. Nothing if it has none.
void drop_copy(State& state, core::ChunkId id);
// Any chunk may be written.
void drop_copies(State& state);
// Its copy becomes what it is on the host, where it is clean; the caller's.
std::optional<Block> take_copy(State& state, core::ChunkId id);

// For want of host memory: gives a copy of `bytes` up, or, of any size, so many that `bytes` are free.
// Whether that could be.
bool spare_copy(State& state, std::uint64_t bytes);
bool spare_copies(State& state, std::uint64_t bytes);

}  // namespace lms::engine

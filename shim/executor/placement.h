// What is mapped where, and taking buffers away.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shim/executor/core.h"
#include "shim/executor/session_lock.h"

namespace lms::executor {

// An address of a chunk, and who may reach it there; all that the port lets in, where that is not said.
struct MappedAt {
    engine::Address address;
    std::optional<program::Access> access;
};
// All that a chunk has: its own, or wherever the program maps it.
std::vector<MappedAt> addresses_of(const Core& core, engine::ChunkId id) LMS_LOCKED;

// What an address leads to, and what it is to lead to; Block{}: nothing. To pinned memory none can lead.
struct Remap {
    MappedAt at;
    Block from;
    Block to;
};
// For all addresses of a chunk.
std::vector<Remap> remaps_of(const Core& core, engine::ChunkId id, const Block& from,
                             const Block& to) LMS_LOCKED;

// For messages: the first of them; 0: none.
inline engine::Address address_of(std::span<const Remap> remaps) {
    return remaps.empty() ? 0 : remaps[0].at.address;
}

// The one way to change what is mapped at an address of the program's. All or none: at the first that the
// driver refuses, which is answered, those before are undone. New memory side by side is let in by one call
// where the driver allows it.
CUresult remap(device::Port& port, std::span<const Remap> remaps) LMS_UNLOCKED;
void undo(device::Port& port, std::span<const Remap> remaps) LMS_UNLOCKED;

// Whether the program has unfinished work, as far as any thread has looked.
bool program_works(const Core& core) LMS_LOCKED;
// Whether a remap now would wait for it (Core::remaps_wait).
bool must_drain(const Core& core) LMS_LOCKED;

// Takes a buffer away whose work is finished: its memory goes back to the pools uncopied, its address to the
// arena. Waits for moves of its chunks to end. Drops `lock`, the session's, around driver calls.
void release(Core& core, engine::AllocationId id, SessionLock& lock) LMS_LOCKED;

// Takes note of fences and fills that have passed. Drops `lock` while it asks the driver.
void poll_completions(Core& core, SessionLock& lock) LMS_LOCKED;

// Releases the buffers freed in stream order whose streams have reached the free.
void free_completed(Core& core, SessionLock& lock) LMS_LOCKED;

}  // namespace lms::executor

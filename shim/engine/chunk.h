// The unit that maps, moves and is evicted, and the words the whole shim uses for it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lms::engine {

using Address = std::uint64_t;       // a device address, as the program sees it
using ChunkId = std::uint32_t;       // index into Residency's table; reused after removal
using AllocationId = std::uint32_t;  // likewise
using TimelineId = std::uint32_t;    // index into Timelines
// Tells one stream from another: its handle, for a legacy default stream its context, for a per-thread one a
// key of its own.
using StreamKey = std::uint64_t;

inline constexpr ChunkId kNoChunk = ~ChunkId{0};

// Where a chunk's bytes are. Legal transitions (Residency checks them):
//
//   Empty ──► Remapping ──► Resident ◄──► Evicting ──► Remapping ──► OnHost
//                 ▲             ▲                                      │
//                 │          Filling ◄── Remapping ◄───────────────────┘
//
enum class State : std::uint8_t {
    // No memory behind the address yet (only where the device cannot map host memory), contents undefined.
    Empty,
    // A thread is changing what is mapped behind the address. Nobody may use it; wait for the change to end.
    Remapping,
    // Device memory is mapped; the copy from the host is enqueued. Consumers wait for its event in their
    // stream.
    Filling,
    // Device memory is mapped and holds the only valid copy, or, of a clean chunk, one of two.
    Resident,
    // Still Resident to every launch, while its contents are copied out; of a clean chunk they are there
    // already. A launch that needs it cancels that.
    Evicting,
    // The only valid copy is in host memory. Where the device can map host memory the address reaches it,
    // slowly.
    OnHost,
};

std::string_view name_of(State state);

// A use of a chunk by work submitted to a stream: finished once that timeline's completed position reaches
// it.
struct Use {
    TimelineId timeline;
    std::uint64_t position;

    bool operator==(const Use&) const = default;
};

struct Chunk {
    Address address = 0;
    std::uint64_t bytes = 0;
    AllocationId allocation = 0;
    State state = State::Empty;
    // Once the copy in is complete, its contents are those of the host memory it came from, which is kept: no
    // work that may write it has been submitted since before it came in. Only in Filling, Resident and
    // Evicting; on the host nobody asks.
    bool clean = false;
    // Threads between deciding to use the chunk and having recorded that use. A pinned chunk is not evicted.
    std::uint32_t pins = 0;
    // Pins of launches that use it where it is, on the host; they bar its coming in.
    std::uint32_t pins_in_place = 0;
    // Executable graphs whose copies have recorded its mapping; it is not evicted while there are any.
    std::uint32_t keeps = 0;
    // Tells it from other chunks that have had the same id: a graph may outlive the buffers it names.
    std::uint64_t serial = 0;
    std::vector<Use> uses;  // the latest per timeline; finished ones are pruned when looked at
};

struct Allocation {
    Address address = 0;
    std::uint64_t bytes = 0;        // of its chunks: what was asked, rounded up to granularity
    std::uint64_t asked_bytes = 0;  // what the program asked for
    std::vector<ChunkId> chunks;
    std::uint64_t serial = 0;  // tells it from all other buffers, those revived from it too
    bool live = false;
    // Freed in stream order: nobody will read its contents again, but the free has not been reached yet.
    bool dead = false;
};

}  // namespace lms::engine

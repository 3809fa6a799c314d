// What one session's parts share, and the one lock that guards it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/app/address_book.h"
#include "shim/core/arena.h"
#include "shim/core/residency.h"
#include "shim/device/port.h"
#include "shim/migration/blocks.h"
#include "shim/migration/fences.h"
#include "shim/migration/large_buffers.h"
#include "shim/migration/launch_samples.h"
#include "shim/migration/link_speeds.h"
#include "shim/migration/pending_frees.h"
#include "shim/migration/pressure.h"
#include "shim/migration/recorded_mappings.h"
#include "shim/migration/soft_limit.h"
#include "shim/migration/submissions.h"
#include "shim/util/host_memory.h"
#include "shim/util/mutex.h"
#include "shim/util/settings.h"

namespace lms::engine {

// The memory behind one chunk, beside what Residency knows of it.
struct Backing {
    Block device;  // while Filling, Resident, Evicting
    Block host;    // while OnHost, as the source, if any, while Filling, and while the chunk is clean
    core::Use fill{};
    std::uint64_t fill_since_ns = 0;
    std::optional<std::uint64_t>
        digest;                  // of the host block, as long as nobody may have changed it (guards.h)
    std::uint64_t eviction = 0;  // the latest there was
    // How often in a row the driver did not let it leave, and State::works then (eviction.h, may_leave).
    unsigned refusals = 0;
    std::uint64_t refused_at = 0;
    // State::soilings when it was given host memory, as long as no work has named it since: its contents
    // are undefined. kUsed: some has, or work was unfinished then that may write what it does not name.
    std::uint64_t fresh_at = kUsed;

    static constexpr std::uint64_t kUsed = ~std::uint64_t{0};
};

// A copy out that has been or is about to be enqueued. It reads `device` and writes `host` to its end,
// whether its chunk still leaves or not. Of a clean chunk there is none, and `host` is the chunk's.
struct PendingEviction {
    core::ChunkId chunk;
    std::uint64_t eviction;  // counts them all
    Block device;
    Block host;
    std::uint64_t since_ns;
    std::uint64_t since_work;  // State::works then
    FencePtr fence;            // at its end
    core::Use copied{};        // the same, once it is enqueued
    bool enqueued = false;
    bool copies = true;
    bool orphan = false;  // the chunk's buffer is gone; `device` is nobody's
};

// A buffer that stands for a handle of the program's own (session/program_memory.h). Its address in the span
// is a name that the program does not know: it is mapped where the program maps the handle, if anywhere.
struct ProgramBuffer {
    struct Mapped {
        core::Address address;
        Access access;
    };
    bool placed = false;  // has been given memory; before, the program cannot have written any
    std::vector<Mapped> views;
};

// Chunks that the program wants kept on the device (<lms/lms.h>), and what it named them by.
struct ProgramPin {
    struct One {
        core::ChunkId chunk;
        std::uint64_t serial;
    };
    core::Address address;
    std::uint64_t bytes;
    std::vector<One> chunks;
};

// The address space a session reserves: the app's buffers, then the aliases of the blocks.
struct Span {
    core::Address begin;
    std::uint64_t app_bytes;
    std::uint64_t alias_bytes;
};

// Everything below `mutex` needs it, but for the two atomics at the end. It is never held across a driver
// call; the parts drop it around each.
struct State {
    State(int device_, device::Port& port_, const Settings& settings_, Span span, core::Ranking& ranking)
        : device(device_),
          port(port_),
          settings(settings_),
          granularity(port_.granularity()),
          host_limit_bytes(util::host_limit_bytes(settings_.host_limit_bytes)),
          arena(span.begin, span.app_bytes, granularity, granularity),
          aliases(span.begin + span.app_bytes, span.alias_bytes, granularity, 0),
          residency(span.begin, span.app_bytes, granularity, ranking),
          soft_limit(settings_.soft_limit_bytes),
          device_blocks(port_, device::Place::Device, aliases),
          host_blocks(port_, device::Place::Host, aliases),
          fences(port_, residency.timelines) {}

    const int device;  // CUDA ordinal
    device::Port& port;
    const Settings& settings;
    const std::uint64_t granularity;
    std::uint64_t host_limit_bytes;  // 0 where moves cannot be trusted
    enum class Trial { Ahead, Running, Passed, Distrusted };
    Trial trial = Trial::Ahead;        // migration/self_check.h
    std::optional<Block> trial_block;  // set apart for it
    unsigned trials = 0;               // that came to no end
    bool in_place_lost = false;        // mapped as it is, host memory is not for kernels to use

    util::Mutex mutex{util::LockOrder::Session};
    // Signalled whenever a chunk changes state, a pin goes, or opaque work is submitted.
    util::Condition changed;

    // Addresses and buffers. Each buffer of `residency` has a range of `arena` to itself, an entry in
    // `owners`, and for each chunk one in `backing`, which has blocks as the chunk's state says.
    core::Arena arena;
    core::Arena aliases;
    core::Residency residency;
    std::vector<CUcontext> owners;  // by AllocationId; null: the GPU's
    std::vector<Backing> backing;   // by ChunkId
    std::unordered_map<core::AllocationId, ProgramBuffer> program_buffers;
    PendingFrees pending_frees;  // of them, those that are dead and whose streams have not come so far
    RecordedMappings recorded;   // of them and of those that are gone, by graphs and objects

    // Physical memory, a tier each. A block that is not free is a chunk's, a pending eviction's, or both's.
    std::uint64_t budget_bytes = 0;  // device memory that blocks may take, as of the last look
    std::uint64_t largest_cut = 0;   // the largest chunk that a buffer was ever cut into
    LargeBuffers large;
    SoftLimit soft_limit;
    BlockPool device_blocks;
    BlockPool host_blocks;
    BlockPool& pool_of(device::Place place) {
        return place == device::Place::Device ? device_blocks : host_blocks;
    }
    void put(const Block& block) { pool_of(block.place).put(block); }  // nobody's work uses it any more

    // Moves under way. A chunk that is Evicting is in `pending_evictions`, with what was copied before and
    // came to nothing, until the copy ends; one that is Filling is in `filling`.
    std::deque<PendingEviction> pending_evictions;  // in the order of their copies
    std::uint64_t evictions = 0;                    // ever begun
    std::uint64_t disturbed = 0;                    // the latest one when opaque work last ended some
    std::vector<core::ChunkId> filling;             // oldest first
    std::uint32_t remapping = 0;                    // chunks being remapped by the migrator
    // The clean chunks, by their bytes (retained_copies.h), and how often they were all soiled: by work that
    // may write any chunk.
    std::set<std::pair<std::uint64_t, core::ChunkId>> retained;
    std::uint64_t soilings = 0;
    bool remaps_beside_work = false;  // seen: a remap does not wait for work that runs

    std::vector<ProgramPin> program_pins;                             // none of a buffer that is freed
    std::unordered_map<core::ChunkId, std::uint32_t> program_pinned;  // how often each is in those
    std::uint64_t program_pinned_bytes = 0;                           // of them, each once
    std::vector<ProgramPin::One> set_aside;  // by the program's pause(): what was there
    bool paused = false;                     // and nothing was asked for since

    // Work. Nothing moves while some is unfinished that may reach any chunk: `opaque_uses`, what is pending
    // of it, or earlier work.
    Fences fences;
    std::vector<core::Use> opaque_uses;
    Submissions submitting;
    EarlierWork earlier;
    // The same of work that moves go on beside, but that may write any chunk: its code cannot be seen.
    std::vector<core::Use> unseen_uses;
    std::uint64_t works = 0;    // ever submitted
    bool traced = false;        // the trace that is written knows what there is; before, it is told nothing
    LaunchSamples samples;      // for it
    LinkSpeeds speeds;          // as the device was seen to copy
    std::uint32_t holders = 0;  // other threads that hold chunks or memory, for a moment, waiting for nobody

    // What naming a piece of work needs, kept for the next. Where a chunk stands among the needs of the one
    // that was named last, and which that was; by ChunkId.
    struct Named {
        std::uint64_t naming = 0;
        std::size_t index = 0;
    };
    std::vector<Named> named;
    std::uint64_t namings = 0;           // ever begun
    std::vector<core::ChunkId> told;     // room for what the policy is told of it
    std::vector<std::uint8_t> accesses;  // of each of those, where it wants to know

    // Objects by which work may reach kept chunks that it does not name: while there are any, all work leaves
    // a fence.
    std::atomic<std::uint32_t> reached{0};
    // Chunks can be used and moved beside each other from here on; before, nothing moves (app/fast_path.h).
    std::atomic<bool> under_pressure{false};
};

// A thread among the holders. Made and ended with the session's lock held.
class Holder {
  public:
    explicit Holder(State& state) : state_(state) { ++state_.holders; }
    ~Holder() { --state_.holders; }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

  private:
    State& state_;
};

}  // namespace lms::engine

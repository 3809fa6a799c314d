// What one session's parts share, and the one lock that guards it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "shim/app/address_book.h"
#include "shim/core/arena.h"
#include "shim/core/residency.h"
#include "shim/device/port.h"
#include "shim/migration/blocks.h"
#include "shim/migration/fences.h"
#include "shim/migration/pending_frees.h"
#include "shim/migration/pressure.h"
#include "shim/migration/soft_limit.h"
#include "shim/util/host_memory.h"
#include "shim/util/settings.h"

namespace lms::engine {

// The memory behind one chunk, beside what Residency knows of it.
struct Backing {
    Block device;  // while Filling, Resident, Evicting
    Block host;    // while OnHost, and as the source while Filling
    core::Use fill{};
    std::uint64_t fill_since_ns = 0;
    std::optional<std::uint64_t>
        digest;                  // of the host block, as long as nobody may have changed it (guards.h)
    std::uint64_t eviction = 0;  // the latest there was
    // State::opaque_works when it was given host memory, as long as no work has named it since: its contents
    // are undefined. kUsed: some has.
    std::uint64_t fresh_at = kUsed;

    static constexpr std::uint64_t kUsed = ~std::uint64_t{0};
};

// A copy out that has been or is about to be enqueued. It reads `device` and writes `host` to its end,
// whether its chunk still leaves or not.
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

// The address space a session reserves: the app's buffers, then the aliases of the blocks.
struct Span {
    core::Address begin;
    std::uint64_t app_bytes;
    std::uint64_t alias_bytes;
};

// Everything below `mutex` needs it. It is never held across a driver call; the parts drop it around each.
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
          fences(port_, residency.timelines),
          device_blocks(port_, device::Place::Device, aliases),
          host_blocks(port_, device::Place::Host, aliases) {}

    const int device;  // CUDA ordinal
    device::Port& port;
    const Settings& settings;
    const std::uint64_t granularity;
    std::uint64_t host_limit_bytes;  // 0 where moves cannot be trusted
    enum class Trial { Ahead, Running, Passed, Distrusted };
    Trial trial = Trial::Ahead;  // migration/self_check.h

    std::mutex mutex;
    // Signalled whenever a chunk changes state, a pin goes, or opaque work is submitted.
    std::condition_variable changed;
    core::Arena arena;
    core::Arena aliases;
    core::Residency residency;
    SoftLimit soft_limit;
    Fences fences;
    BlockPool device_blocks;
    BlockPool host_blocks;
    std::vector<CUcontext> owners;  // by AllocationId; null: the GPU's
    std::vector<Backing> backing;   // by ChunkId
    std::unordered_map<core::AllocationId, ProgramBuffer> program_buffers;
    // Where a chunk stands among the needs of the work that was named last, and which that was; by ChunkId.
    struct Named {
        std::uint64_t naming = 0;
        std::size_t index = 0;
    };
    std::vector<Named> named;
    std::uint64_t namings = 0;                      // ever begun
    std::vector<core::ChunkId> told;                // what the policy is told of one piece of work
    std::deque<PendingEviction> pending_evictions;  // in the order of their copies
    std::uint64_t evictions = 0;                    // ever begun
    std::uint64_t disturbed = 0;                    // the latest one when opaque work last ended some
    std::vector<core::ChunkId> filling;             // Filling now, oldest first
    std::uint32_t remapping = 0;                    // chunks being remapped by the migrator
    bool remaps_beside_work = false;                // seen: a remap does not wait for work that runs
    std::vector<core::Use> opaque_uses;             // submitted work that may reach any chunk
    std::uint32_t opaque_pending = 0;               // such work between acquire() and submitted()
    EarlierWork earlier;                            // such work too
    std::uint64_t opaque_works = 0;                 // ever announced
    std::uint64_t works = 0;                        // ever submitted
    std::uint32_t holders = 0;  // threads that hold chunks or memory, for a moment, waiting for nobody
    PendingFrees pending_frees;
    std::uint64_t budget_bytes = 0;  // device memory that blocks may take, as of the last look

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

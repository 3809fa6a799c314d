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

#include "shim/device/port.h"
#include "shim/engine/arena.h"
#include "shim/engine/engine.h"
#include "shim/engine/recorded_mappings.h"
#include "shim/engine/soft_limit.h"
#include "shim/executor/block_source.h"
#include "shim/executor/fences.h"
#include "shim/executor/host_claims.h"
#include "shim/executor/large_buffers.h"
#include "shim/executor/pressure.h"
#include "shim/executor/program_pins.h"
#include "shim/executor/session_lock.h"
#include "shim/program/address_book.h"
#include "shim/telemetry/telemetry.h"
#include "shim/util/clock.h"
#include "shim/util/host_memory.h"
#include "shim/util/mutex.h"
#include "shim/util/settings.h"

namespace lms::executor {

class GpuShare;

using engine::Backing;
using engine::ChunkPins;
using engine::ChunkRequest;
using engine::EarlierWork;
using engine::PageIn;

// A buffer that stands for a handle of the program's own (session/program_memory.h). Its address in the span
// is a name that the program does not know: it is mapped where the program maps the handle, if anywhere.
struct ProgramBuffer {
    struct Mapped {
        engine::Address address;
        program::Access access;
    };
    bool placed = false;  // has been given memory; before, the program cannot have written any
    std::vector<Mapped> views;
};

// The address space a session reserves: the program's buffers, then the aliases of the blocks.
struct Span {
    engine::Address begin;
    std::uint64_t app_bytes;
    std::uint64_t alias_bytes;

    engine::Address app_end() const { return begin + app_bytes; }
    bool has_buffer(engine::Address address) const { return address - begin < app_bytes; }
    bool has(engine::Address address) const { return address - begin < app_bytes + alias_bytes; }
};

// What is LMS_GUARDED needs `mutex`. That is
// never held across a driver call; the parts drop it around each.
struct Core {
    Core(int device_, device::Port& port_, const Settings& settings_, Span span_, engine::Ranking& ranking);

    const int device;  // CUDA ordinal
    device::Port& port;
    const Settings& settings;
    const std::uint64_t granularity;
    const Span span;
    enum class Trial { Ahead, Running, Passed, Distrusted };
    Trial trial LMS_GUARDED = Trial::Ahead;        // executor/self_check.h
    std::optional<Block> trial_block LMS_GUARDED;  // set apart for it
    unsigned trials LMS_GUARDED = 0;               // that came to no end
    bool in_place_lost LMS_GUARDED = false;        // mapped as it is, host memory is not for kernels to use

    util::Mutex mutex{util::LockOrder::Session};
    // Signalled whenever a chunk changes state, a pin goes, or opaque work is submitted.
    util::Condition changed;

    // Decides what moves, and knows what is where. Each buffer has a range of `arena` to itself and an entry
    // in `owners`.
    engine::Engine engine LMS_GUARDED;
    const engine::Residency& residency LMS_GUARDED = engine.residency();
    const std::vector<engine::Backing>& backing LMS_GUARDED = engine.backing();
    engine::Arena arena LMS_GUARDED;
    engine::Arena aliases LMS_GUARDED;
    std::vector<CUcontext> owners LMS_GUARDED;  // by AllocationId; null: the GPU's
    std::unordered_map<engine::AllocationId, ProgramBuffer> program_buffers LMS_GUARDED;
    // Of buffers and of those that are gone, by graphs and objects.
    engine::RecordedMappings recorded LMS_GUARDED;

    // Physical memory, created and destroyed.
    LargeBuffers large LMS_GUARDED;
    engine::SoftLimit soft_limit LMS_GUARDED;
    BlockSource device_blocks LMS_GUARDED;
    BlockSource host_blocks LMS_GUARDED;
    BlockSource& source_of(engine::Place place) LMS_LOCKED {
        return place == engine::Place::Device ? device_blocks : host_blocks;
    }

    // Ends of copies out, by eviction, for those that wait for one.
    std::unordered_map<std::uint64_t, FencePtr> copy_fences LMS_GUARDED;
    bool remaps_beside_work LMS_GUARDED = false;  // seen: a remap does not wait for work that runs
    bool remaps_wait LMS_GUARDED = false;  // seen in a trial, and never the contrary: each waits for all

    // Outlives it, set before others know of the session; null: it has the machine's memory for itself.
    HostClaims* host_claims LMS_GUARDED = nullptr;
    HostClaims::Part host_part LMS_GUARDED;
    // What it may take of a GPU that others use too; 0: they do not.
    std::uint64_t granted_bytes LMS_GUARDED = 0;
    util::Clock::time_point next_look_for_room LMS_GUARDED{};      // budget.h
    util::Clock::time_point next_look_at_unmanaged LMS_GUARDED{};  // budget.h
    util::Clock::duration unmanaged_look LMS_GUARDED{};            // until it
    // The session's; null: the GPU is as if it were this process's alone.
    GpuShare* share LMS_GUARDED = nullptr;

    ProgramPins program_pins LMS_GUARDED;
    std::vector<ChunkRequest> set_aside LMS_GUARDED;  // by the program's pause(): what was there
    bool paused LMS_GUARDED = false;                  // and nothing was asked for since

    Fences fences;  // says itself what of it needs the lock
    engine::EarlierWork& earlier LMS_GUARDED = engine.earlier;
    telemetry::Telemetry telemetry LMS_GUARDED;
    // Other threads that hold chunks or memory, for a moment, waiting for nobody.
    std::uint32_t holders LMS_GUARDED = 0;

    // Objects by which work may reach kept chunks that it does not name: while there are any, all work leaves
    // a fence.
    std::atomic<std::uint32_t> reached{0};
    // Chunks can be used and moved beside each other from here on; before, nothing moves
    // (program/fast_path.h).
    std::atomic<bool> under_pressure{false};
};

// A thread among the holders. Made and ended with the session's lock held.
class Holder {
  public:
    explicit Holder(Core& core) LMS_LOCKED : core_(core) { ++core_.holders; }
    ~Holder() { --core_.holders; }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

  private:
    Core& core_;
};

}  // namespace lms::executor

// Decides what moves and when: chunks in before work that names them, cold ones out to make room.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shim/executor/core.h"
#include "shim/executor/page_in.h"
#include "shim/executor/session_lock.h"
#include "shim/executor/stalled_work.h"
#include "shim/trace/events.h"
#include "shim/util/clock.h"

namespace lms::executor {

// Moves are made by the thread that needs them, one thread at a time, in order of arrival; a thread that can
// get no further within a bound lets the next one try. Launches whose chunks are all resident never queue.
class Migrator {
  public:
    explicit Migrator(Core& core) : core_(core) {}

    // Pins `needs` in `hold`, each on the device (Filling counts) or, after a bound and where kernels reach
    // host memory, in place. Needs `lock`, the session's, and drops it while it moves or waits.
    // CUDA_ERROR_OUT_OF_MEMORY when they can never all be on the device and cannot be used in place; then
    // nothing is held. Needs whose buffer was freed are passed over.
    CUresult bring_in(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) LMS_LOCKED;
    // Whether `needs`, which must be on the device beside what is kept there, were beyond what other
    // processes left, and are no more: it has waited for that.
    bool await_grant(std::span<const ChunkRequest> needs, SessionLock& lock) LMS_LOCKED;

    // Holds `needs` wherever they are: on the device or, where kernels reach host memory, in place. Waits for
    // moves that are under way.
    void hold_anywhere(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) LMS_LOCKED;

    // Moves what the policy foretells, as far as that holds nobody up: a few chunks at a time, and out goes
    // only what is idle and needed later. False if there is nothing more to be moved, or nobody knows what.
    bool move_ahead(SessionLock& lock) LMS_LOCKED;

    // Gives device memory back to the driver, evicting if need be; the bytes given back.
    std::uint64_t reclaim(std::uint64_t bytes, SessionLock& lock) LMS_LOCKED;

    // Waits for a moment if moves hold memory that they will give back; false if there are none.
    bool give_back_soon(SessionLock& lock) LMS_LOCKED;

    // The next three are asked for by the program, not needed by its work: that they do not wait for, the
    // first not beyond a bound.
    //
    // Brings `needs` in and pins them in `hold`. False, and nothing is held: they are not all there.
    bool try_bring_in(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) LMS_LOCKED;
    // Evicts `those`, as far as they are idle.
    enum class Evicted { All, Some, NoHostMemory };
    Evicted evict(std::span<const ChunkRequest> those, SessionLock& lock) LMS_LOCKED;
    // Evicts what is idle and beyond a new limit, and gives it back to the driver.
    void give_back_excess(SessionLock& lock, bool waits_for_copies) LMS_LOCKED;
    // The budget has changed: the same, and pressure begins if there is any.
    void keep_to_budget(SessionLock& lock, bool waits_for_copies) LMS_LOCKED;

    // Waits until no work uses the buffer, or it is gone, without a turn; false: for some seconds, in vain.
    bool await_unused(engine::AllocationId id, SessionLock& lock) LMS_LOCKED;

    // Whether a thread moves, or waits to.
    bool is_busy() const LMS_LOCKED { return !queue_.empty(); }

    // Calls `action`, which may drop `lock`, while nothing moves or fills.
    void run_quiesced(SessionLock& lock, const std::function<void()>& action) LMS_LOCKED;

  private:
    using Clock = util::Clock;
    // Copies in that are enqueued before more is chosen to go: what is chosen later is chosen better.
    static constexpr std::size_t kFewFills = 2;
    enum class Step {
        Moved,
        Waited,
        Stalled,  // did not wait: what it would wait for is stalled
        Impossible,
    };
    class MigrationTurn;

    CUresult hold_all(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) LMS_LOCKED;
    bool restore(const ChunkPins& hold, SessionLock& lock) LMS_LOCKED;
    bool never_fits(std::span<const ChunkRequest> needs, SessionLock& lock) LMS_LOCKED;
    bool hold_in_place(std::span<const ChunkRequest> needs, std::span<const ChunkRequest> missing,
                       ChunkPins& hold) LMS_LOCKED;
    Step step(std::span<const ChunkRequest> missing, SessionLock& lock) LMS_LOCKED;
    // `beside`: where remaps wait for the program's work, it waits here, and no longer than for other things.
    Step make_room(std::uint64_t bytes, std::uint64_t limit, SessionLock& lock, bool beside) LMS_LOCKED;
    // Where remaps wait for all work (migrator_drain.cpp).
    Step await_drain(SessionLock& lock) LMS_LOCKED;
    std::uint64_t start_for_upcoming(std::uint64_t bytes, SessionLock& lock) LMS_LOCKED;
    void add_upcoming(std::vector<PageIn>& fills, SessionLock& lock) LMS_LOCKED;
    Step page_in_together(std::vector<PageIn> fills, SessionLock& lock) LMS_LOCKED;
    Step await_copy_out(SessionLock& lock) LMS_LOCKED;
    // False: it is not to be waited for any more.
    bool await_turn(std::span<const ChunkRequest> needs, SessionLock& lock) LMS_LOCKED;
    template <typename Ready>
    bool await_share(SessionLock& lock, Ready ready) LMS_LOCKED;
    bool has_lost_turn() const LMS_LOCKED;
    bool await_others(SessionLock& lock) LMS_LOCKED;
    Step await_fill(SessionLock& lock) LMS_LOCKED;
    bool await_frees(SessionLock& lock) LMS_LOCKED;
    Step await_opaque(SessionLock& lock) LMS_LOCKED;
    Step await_idle(std::uint64_t bytes, SessionLock& lock) LMS_LOCKED;
    bool may_remap_now() const LMS_LOCKED;
    bool bring_in_ahead(SessionLock& lock) LMS_LOCKED;
    bool evict_ahead(SessionLock& lock) LMS_LOCKED;
    bool step_ahead(std::span<const engine::ChunkId> next, SessionLock& lock) LMS_LOCKED;
    void start_ahead(const ChunkPins& hold, SessionLock& lock) LMS_LOCKED;
    Step page_in_now(std::span<const PageIn> fills, SessionLock& lock) LMS_LOCKED;
    Step await(const std::vector<engine::Use>& uses, SessionLock& lock) LMS_LOCKED;
    Step await_holders(SessionLock& lock) LMS_LOCKED;
    bool someone_holds() const LMS_LOCKED;
    // Memory that they need now is not taken for what is foretold.
    bool others_want_memory() const LMS_LOCKED { return queue_.size() > 1 || core_.holders > 0; }
    std::chrono::milliseconds glance() const;
    void wait_for_uses(const std::vector<engine::Use>& uses, SessionLock& lock) LMS_LOCKED;
    void wait_for_change(SessionLock& lock) LMS_LOCKED;

    Core& core_;
    trace::StallCause waits_for_ = trace::StallCause::Mapping;  // as of the last step
    std::deque<const void*> queue_;                             // who moves, then who waits to
    std::uint64_t excess_stays_until_ = 0;                      // Engine::works(): nothing of it was idle
    std::uint64_t kept_by_others_ = 0;                          // of what is granted: waited for in vain
    Clock::time_point frees_until_{};                           // of the launch whose turn it is
    engine::Use free_in_vain_{};                                // was waited for that long
    int starving_ = 0;                                          // of them, those that find nothing idle
    StalledWork stalled_{core_};
    StalledWork stalled_for_long_{core_};  // await_unused()
};

// Unpins what `hold` holds. Needs the session's lock.
void let_go(Core& core, const ChunkPins& hold) LMS_LOCKED;
// The same, and `hold` holds nothing any more.
void drop(Core& core, ChunkPins& hold) LMS_LOCKED;

}  // namespace lms::executor

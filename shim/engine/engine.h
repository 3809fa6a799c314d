// The engine: decides what moves, what is held and what is freed. It is told what happened and answers what
// to do. It calls no driver, takes no lock, reads no clock, no environment and no file: times are arguments.
//
// The executor (executor/) holds the session's lock around every call, carries the answers out with the lock
// dropped, and says what came of them. So between an answer and its result any other call may come, in any
// order; tests/explore tries them all in small cases.
//
// A move out:  next_eviction -> begin_eviction -> copies_to_enqueue -> copy_enqueued -> (its fence passes)
//              -> take_remaps_out -> remapped_out
// A move in:   begin_page_in -> paged_in -> (its fence passes) -> complete_moves
// Work:        hold -> begin_submission -> announce -> (the driver) -> submitted -> end_submission -> let_go
//
// engine/rules.h has what is always so between two calls.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "shim/engine/block_pool.h"
#include "shim/engine/chunk_request.h"
#include "shim/engine/earlier_work.h"
#include "shim/engine/gpu_waits.h"
#include "shim/engine/pending_frees.h"
#include "shim/engine/residency.h"
#include "shim/engine/submissions.h"

namespace lms::engine {

// The memory behind one chunk, beside what Residency knows of it.
struct Backing {
    static constexpr std::uint64_t kUsed = ~std::uint64_t{0};

    Block device;  // while Filling, Resident, Evicting
    Block host;    // while OnHost, as the source, if any, while Filling, and while the chunk is clean
    Use fill{};
    std::uint64_t fill_since_ns = 0;
    // Of the host block, as long as no work may have changed it (executor/guards.h).
    std::optional<std::uint64_t> digest;
    std::uint64_t eviction = 0;  // the latest there was
    // How often in a row the driver did not let it leave, and works() then (may_leave).
    unsigned refusals = 0;
    std::uint64_t refused_at = 0;
    // soilings() when it was given host memory, as long as no work has named it since: its contents are
    // undefined. kUsed: some has, or work was unfinished then that may write what it does not name.
    std::uint64_t fresh_at = kUsed;
};

// A copy out that has been or is about to be enqueued. It reads `device` and writes `host` to its end,
// whether its chunk still leaves or not. Of a clean chunk there is none, and `host` is the chunk's.
struct PendingEviction {
    ChunkId chunk;
    std::uint64_t eviction;  // counts them all
    Block device;
    Block host;
    std::uint64_t since_ns;
    std::uint64_t since_work;  // works() then
    Use copied{};              // finished when the copy is, once it is enqueued
    bool enqueued = false;
    bool copies = true;
    bool foretold = false;  // goes as soon as it is copied: its room is foretold to be lacking
    bool orphan = false;    // the chunk's buffer is gone; `device` is of no chunk
};

// What starting evictions needs next.
struct NextEviction {
    enum class Is {
        Enough,
        NoVictims,
        WantsHostBlock,  // for begin_eviction(): `bytes`
    };
    Is is;
    ChunkId victim = kNoChunk;
    std::uint64_t serial = 0;
    std::uint64_t bytes = 0;
};

// Command: enqueue the copy of `device` to `host`, then copy_enqueued().
struct CopyOut {
    std::uint64_t eviction;
    Block device;
    Block host;
};

// Command: make the chunk's addresses lead to `host` instead of `device`, then remapped_out().
struct RemapOut {
    std::uint64_t eviction;
    ChunkId chunk;
    Block device;
    Block host;
    bool copies;  // false: a clean chunk, whose host copy was kept
    std::uint64_t since_ns;
    std::optional<Block> kept;  // a host copy that was made a second time
};

// A chunk to come in, and the block it gets.
struct PageIn {
    ChunkRequest need;
    Block block;
};

// Command: make the chunk's addresses lead to `block`, and put its contents there, then paged_in().
struct Fill {
    ChunkId chunk;
    Block block;
    Block host;  // where it was; none: `on_host` is false
    bool on_host;
    bool copies;                          // from `host`
    bool clears;                          // instead of that, for its contents are undefined, and will be read
    bool written;                         // by the work that it comes in for
    std::optional<std::uint64_t> digest;  // of what is in `host`
};
struct Fills {
    std::vector<Fill> each;
    bool refused = false;  // some stay where they are, for moves cannot be trusted
    // As it was when they began.
    bool cleanly = false;
    std::uint64_t soilings = 0;
};
// What came of one.
struct Filled {
    bool mapped = false;  // false: the driver refused, and all is as it was
    bool waits = false;   // something was enqueued: the contents are there at `end`
    Use end{};            // finished: no fence was to be had, and the host has waited
    std::uint64_t since_ns = 0;
};

// A copy in that is complete.
struct CameIn {
    ChunkId chunk;
    std::uint64_t since_ns;
};

// What the engine is told once, of settings and GPU.
struct EngineOptions {
    Address begin = 0;  // the program's buffers lie in [begin, begin + bytes)
    std::uint64_t bytes = 0;
    std::uint64_t granularity = 0;
    bool strict = false;          // LMS_SAFETY=strict: nothing is copied ahead of need
    bool sees_all_writes = true;  // LMS_SAFETY=opaque: each kernel is looked at, so a chunk may be clean
    bool knows_undefined = true;  // not LMS_SAFETY=args: work that reaches new memory unnamed is noticed
    bool checks = false;          // LMS_CHECK: a clean chunk is copied all the same
    std::uint64_t host_limit_bytes = 0;
};

// Not thread-safe; the session's lock guards it.
class Engine final : private Asker {
  public:
    // `ranking` is borrowed.
    Engine(const EngineOptions& options, Ranking& ranking);
    // For the explorer: the copy asks the same ranking.
    Engine(const Engine&) = default;
    Engine(Engine&&) = default;

    const Residency& residency() const { return residency_; }
    const std::vector<Backing>& backing() const { return backing_; }  // by ChunkId
    const std::vector<PendingEviction>& pending_evictions() const { return pending_evictions_; }
    const std::vector<ChunkId>& filling() const { return filling_; }  // oldest first
    const std::set<std::pair<std::uint64_t, ChunkId>>& retained() const { return retained_; }
    const Submissions& submissions() const { return submissions_; }
    const std::vector<Use>& opaque_uses() const { return opaque_uses_; }
    const std::vector<Use>& unseen_uses() const { return unseen_uses_; }
    std::uint64_t works() const { return works_; }        // ever submitted
    std::uint64_t soilings() const { return soilings_; }  // how often any chunk may have been written
    std::uint64_t largest_cut() const { return largest_cut_; }

    // Fences have passed: the executor says how far each stream has come.
    Timelines& timelines() { return residency_.timelines; }
    EarlierWork earlier;
    PendingFrees pending_frees;

    // ------------------------------------------------------------ buffers (engine_buffers.cpp)
    // A new buffer, without memory.
    AllocationId add(Address address, std::uint64_t asked_bytes, std::span<const std::uint64_t> chunk_bytes);
    // Its first memory is about to be mapped; what came of that.
    bool begin_placing(ChunkId id) { return residency_.begin_in(id); }
    void placed(ChunkId id, const Block& block, bool mapped);
    // Memory that no work has written, of a chunk without any, on the host. False: it has some.
    bool back_by_host(ChunkId id, const Block& host);
    // Freed by the program, at the end of what the stream has been given. Its contents are never moved again.
    void kill(AllocationId id) { residency_.kill(id); }
    void revive(AllocationId id, std::uint64_t asked_bytes) {
        residency_.revive(id, asked_bytes);
        note_live();
    }
    // The most that was allocated at once, without what streams had yet to free.
    std::uint64_t most_live_bytes() const { return most_live_bytes_; }
    // Takes a buffer away: first what moves of it ends. True: it moves or is held, ask again after a change.
    bool must_wait_to_remove(AllocationId id);
    void remove(AllocationId id);  // its blocks are the caller's, who gives them to put_freed()
    // False: a copy out reads it still, and gives it back at its end.
    bool put_freed(const Block& block);
    bool is_read(const Block& block);  // by such a copy
    // No thread is about to use it, no work uses it, and no graph's copies do.
    bool is_used(AllocationId id) const;
    bool is_held(AllocationId id) const;

    // ------------------------------------------------------------ work (engine_work.cpp)
    // Pins what is on the device, or may stay where it is, and appends the rest to `missing`; true: none is.
    // What is aside comes last, once nothing else is missing.
    bool hold(std::span<const ChunkRequest> needs, ChunkPins& pins, std::vector<ChunkRequest>& missing);
    // Whether that would pin all.
    bool present(std::span<const ChunkRequest> needs) const;
    // Beside what is pinned already: `missing` where it is, on the host, and what is aside wherever that is.
    // False: not all can be held so, and what was is in `pins`.
    bool hold_in_place(std::span<const ChunkRequest> needs, std::span<const ChunkRequest> missing,
                       ChunkPins& pins);
    void let_go(const ChunkPins& pins);
    void drop(ChunkPins& pins);  // the same, and `pins` holds nothing any more

    // A thread is about to submit work. Its number.
    std::uint64_t begin_submission(bool opaque, bool unseen) { return submissions_.begin(opaque, unseen); }
    // Opaque work waits for remaps that are under way.
    bool may_announce(bool opaque) const { return !opaque || remapping_ == 0; }
    // From here on nothing moves that it may reach. Its stream is to wait for `pins.fill`.
    void announce(std::span<const ChunkRequest> needs, ChunkPins& pins);
    // That is not there yet. `oldest`: the oldest work that is not known to be over, of each of the program's
    // streams.
    void note_wait(std::span<const Use> oldest) { gpu_waits_.look(oldest, residency_.timelines, works_); }
    // The driver has it. `end`: finished when the work is; none: it is over, or left no fence.
    void submitted(const ChunkPins& pins, const std::optional<Use>& end);
    // So many works ago the GPU had nothing to run for want of copies in; Links::kNever: it always had.
    std::uint64_t works_since_wait() const { return gpu_waits_.works_since(works_); }
    void end_submission(std::uint64_t number) { submissions_.end(number); }
    // Work that may reach any chunk is unfinished until then.
    void opaque_until(const Use& end) { record_use(opaque_uses_, end, residency_.timelines); }
    // The GPU's last context has gone, and all work with it.
    void all_work_is_over();

    // Work that may reach any chunk is unfinished, or about to be submitted; or such as may write one that it
    // does not name, though moves go on beside it.
    bool opaque_busy() const;
    bool unseen_busy() const;

    // What the policy learns of a piece of work, and of a use that no work names.
    void work(std::span<const ChunkId> ids, const WorkFacts* facts) { residency_.work(ids, facts); }
    void touch(std::span<const ChunkRequest> needs);

    // ------------------------------------------------------------ out (engine_out.cpp)
    // Chooses victims, idle ones only, until those that leave have `wanted.need_bytes` together, and of
    // `ahead` more those that come before the first clean one, which can go at any time.
    NextEviction next_eviction(const VictimRequest& wanted, std::uint64_t ahead, std::uint64_t now_ns);
    // With `host` its copy can be made. False: it cannot go now, and `host` is back in the pool.
    bool begin_eviction(ChunkId victim, std::uint64_t serial, const Block& host, std::uint64_t now_ns,
                        bool foretold = false);
    // The same of one that needs no copy.
    bool begin_clean_eviction(ChunkId victim, std::uint64_t now_ns);
    // The chunk to evict because room is foretold to be lacking, while few copies out are left to make.
    // Enough: none now, but ask again when some work or copy is over; NoVictims: none.
    NextEviction next_foretold();
    // Whom to wait for if nothing is idle; kNoChunk: none.
    ChunkId busy_victim(std::uint64_t bytes, const std::function<bool(const Chunk&)>& accept);

    std::vector<CopyOut> copies_to_enqueue() const;
    // `copied` false: the driver refused, the eviction has ended. `end` may be finished.
    void copy_enqueued(std::uint64_t eviction, bool copied, const Use& end);
    // Chunks whose copies are complete, until they have `bytes` together or no other is complete; or all of
    // them that go for what is foretold.
    std::vector<RemapOut> take_remaps_out(std::uint64_t bytes);
    std::vector<RemapOut> take_foretold_remaps_out();
    void remapped_out(const RemapOut& remap, bool done, std::optional<std::uint64_t> digest);

    // Bytes of the chunks that leave: whose copy has begun and that no launch has claimed back.
    std::uint64_t pending_eviction_bytes() const;
    // How much is to be copied out before it is needed: nothing where the next launches would only end it.
    std::uint64_t ahead_bytes() const;
    // Ends the evictions that can still be ended: opaque work is about to be submitted.
    void cancel_evictions();
    // Ends those that much work has passed by. A kernel may have written through a pointer that was not seen,
    // and the longer a copy waits for its remap, the more likely that is. What is needed is copied again.
    void cancel_stale();
    bool leaves(const PendingEviction& each) const;
    // Whether some copy, in or out, is not seen to be over.
    bool copies_under_way() const;
    bool is_complete(const PendingEviction& each) const;
    // Whether the chunk may be a victim. One that the driver does not let go, time and again, is none for a
    // while: others leave in its place, or the call that needs room is out of memory.
    bool may_leave(ChunkId id) const;
    void forget_refusals();  // all may again
    // Whether the chunk leaves as it is. LMS_CHECK wants to see it copied.
    bool needs_no_copy(ChunkId id) const { return residency_.chunk(id).clean && !options_.checks; }
    // How often since the last call a policy named no victim, or one that may not go.
    std::uint64_t take_overruled() { return std::exchange(overruled_, 0); }

    // ------------------------------------------------------------ in (engine_in.cpp)
    // What can come in of `fills`; the blocks of the rest are back in the pool.
    Fills begin_page_in(std::span<const PageIn> fills);
    void paged_in(const Fills& fills, std::span<const Filled> came);
    // Takes note of copies that are complete; which chunks have come in.
    std::vector<CameIn> complete_moves();
    std::size_t upcoming(std::span<ChunkId> out) { return residency_.upcoming(out); }
    // Moves cannot be trusted: what is mapped stays.
    void distrust() { distrusted_ = true; }
    bool is_distrusted() const { return distrusted_; }

    // ------------------------------------------------------------ kept where they are (engine_pins.cpp)
    // An executable graph or object has recorded its mapping. Returns what unpin_resident() wants.
    std::uint64_t pin_resident(ChunkId id);
    void unpin_resident(ChunkId id, std::uint64_t serial, std::span<const Use> uses = {});
    // Wherever it is, while the program changes what is mapped. True: it is being remapped, ask again.
    bool must_wait_to_hold_still(ChunkId id);
    void hold_still(ChunkId id);
    void end_still(ChunkId id);
    // Its memory is replaced by the driver's: no thread is given the chunk meanwhile. It ends as it was.
    State begin_replacing(ChunkId id);
    void end_replacing(ChunkId id, State before);
    // Other host memory has its contents; the block it had before.
    Block replace_host(ChunkId id, const Block& host);
    void rank_by(Ranking& ranking) { residency_.rank_by(ranking); }

    // ------------------------------------------------------------ retained copies (engine_retained.cpp)
    // Whether what begins to come in now may be clean.
    bool may_be_clean() const { return options_.sees_all_writes && !unseen_busy(); }
    // It may be written, or goes: its copy is given back, once no copy reads it. Nothing if it has none.
    void drop_copy(ChunkId id);
    void drop_copies();  // any chunk may be written
    // For want of host memory: gives a copy of `bytes` up, or, of any size, so many that `bytes` are free.
    bool spare_copy(std::uint64_t bytes);
    bool spare_copies(std::uint64_t bytes);

    // ------------------------------------------------------------ memory (engine_memory.cpp)
    BlockPool& pool(Place place) { return place == Place::Device ? device_pool_ : host_pool_; }
    const BlockPool& pool(Place place) const { return place == Place::Device ? device_pool_ : host_pool_; }
    void put(const Block& block) { pool(block.place).put(block); }  // no work uses it any more

    std::uint64_t budget_bytes() const { return budget_bytes_; }  // device memory that blocks may take
    std::uint64_t host_limit_bytes() const { return distrusted_ ? 0 : options_.host_limit_bytes; }
    void set_budget(std::uint64_t bytes) { budget_bytes_ = bytes; }
    // Below this much on the device nothing is evicted.
    std::uint64_t eviction_start() const;
    // The next step to a device block of `bytes` that keeps the device within `limit` resident bytes.
    struct Room {
        enum class Is { Taken, None, Recover, Trim, Create };
        Is is;
        Block block{};            // Taken
        std::uint64_t bytes = 0;  // Trim: at least
    };
    Room device_room(std::uint64_t bytes, std::uint64_t limit, bool recovered);
    // Two of the largest chunks.
    std::uint64_t way_bytes() const;
    // Bytes that may be allocated in all: the budget and the host limit, less room through which the last
    // chunks can change places. Two largest chunks are enough: where one does not fit on the device, more
    // than one is free on the host, whatever the sizes of the rest.
    std::uint64_t capacity_bytes() const;
    // Bytes of host memory that `allocated` bytes of buffers may need at once.
    std::uint64_t promised_host_bytes(std::uint64_t allocated) const;
    // Bytes of host memory that may be pinned in all, where the machine can spare `spare_bytes`: what is held
    // and that, or what has been promised (which is given whatever else happens).
    std::uint64_t host_bytes(std::uint64_t spare_bytes) const;
    // What of the buffers the host has no room for.
    std::uint64_t least_budget(std::uint64_t spare_bytes) const;

    // Copies that are under way, and how fast they go (0: not known), for policies that ask.
    void set_link_speeds(std::uint64_t in_bytes_per_s, std::uint64_t out_bytes_per_s);
    Links links() override;

  private:
    Candidate candidate(ChunkId chunk) override;
    void overruled() override { ++overruled_; }
    VictimRequest asked_by(const VictimRequest& wanted) {
        return {wanted.need_bytes, wanted.purpose, wanted.sooner, this};
    }
    std::vector<RemapOut> take_remaps_out(std::uint64_t bytes, bool foretold_alone);
    bool hold_one(const ChunkRequest& need, ChunkPins& pins);
    void list(ChunkId victim, const Block& host, bool copies, std::uint64_t now_ns);
    void sweep_evictions();
    PendingEviction* copy_of(const Block& block);
    std::optional<Block> take_copy(ChunkId id);
    void note_live();
    void retain_copy(ChunkId id);
    bool is_fresh(ChunkId id) const { return backing_[id].fresh_at == soilings_; }
    std::uint64_t fresh_now() const;

    EngineOptions options_;
    Residency residency_;
    std::vector<Backing> backing_;
    BlockPool device_pool_;
    BlockPool host_pool_;
    std::uint64_t budget_bytes_ = 0;
    std::uint64_t most_live_bytes_ = 0;
    std::uint64_t largest_cut_ = 0;  // the largest chunk that a buffer was ever cut into
    bool distrusted_ = false;

    // A chunk that is Evicting is in `pending_evictions_`, with what was copied before and came to nothing,
    // until the copy ends; one that is Filling is in `filling_`.
    std::vector<PendingEviction> pending_evictions_;  // in the order of their copies
    std::uint64_t evictions_ = 0;                     // ever begun
    std::uint64_t disturbed_ = 0;                     // the latest one when opaque work last ended some
    std::vector<ChunkId> filling_;
    std::uint32_t remapping_ = 0;
    std::set<std::pair<std::uint64_t, ChunkId>> retained_;  // the clean chunks, by their bytes
    std::uint64_t soilings_ = 0;

    Submissions submissions_;
    std::vector<Use> opaque_uses_;
    std::vector<Use> unseen_uses_;
    std::uint64_t works_ = 0;
    GpuWaits gpu_waits_;

    Links speeds_;
    std::uint64_t overruled_ = 0;
};

}  // namespace lms::engine

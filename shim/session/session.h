// Everything the shim does for one GPU, behind the calls that entry/ makes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "shim/device/port.h"
#include "shim/engine/ranking.h"
#include "shim/executor/core.h"
#include "shim/executor/gpu_share.h"
#include "shim/executor/migrator.h"
#include "shim/session/idle_helper.h"
#include "shim/session/working_set.h"
#include "shim/util/settings.h"

namespace lms::session {

using engine::Block;
using engine::ChunkPins;
using engine::ChunkRequest;
using engine::EarlierWork;
using engine::StreamKey;

// A piece of work at one session: what it reaches, what of that is here, and what it holds of it from
// acquire() to submitted().
struct Work {
    // `reach_` outlives it.
    explicit Work(const WorkingSet& reach_, bool elsewhere_ = false,
                  std::pmr::memory_resource* memory = std::pmr::get_default_resource())
        : reach(reach_), elsewhere(elsewhere_), needs(memory), hold(memory) {}

    // Whether it has nothing to do with the session.
    bool is_nothing() const { return elsewhere && needs.empty(); }

    const WorkingSet& reach;
    bool elsewhere;  // runs on another GPU, which reaches nothing here but what it names
    std::pmr::vector<ChunkRequest> needs;
    ChunkPins hold;
    std::uint64_t begin_ns = 0;    // where a trace is written
    std::uint64_t timing = 0;      // the piece of work as which the device times it; 0: it does not
    executor::TimedWork timed;     // what for, if not for a trace
    executor::FencePtr spare;      // to be recorded behind it
    bool deep = false;             // its stream is: it is not made to wait (Fences::is_deep)
    bool leaves_event = true;      // behind it
    std::uint64_t submission = 0;  // Engine::begin_submission()'s; 0: it was not begun
    std::uint64_t listing = 0;     // EarlierWork's latest as it began; 0: nothing may be taken for its
    std::vector<CUcontext> forbidden = {};  // forbidden_legacy(), before a call that nobody knows
    bool refused = false;                   // by the driver: it runs nothing
};

// Which GPU, and the context of the program's through which the shim works on it at first.
struct Gpu {
    CUdevice device;
    CUcontext context;
};

// Chunks kept on the device, each with what Engine::unpin_resident wants. Their buffers may be freed
// meanwhile.
struct ResidentPins {
    struct One {
        engine::ChunkId chunk;
        std::uint64_t serial;
    };
    std::vector<One> chunks;
};

// A buffer as the program knows it.
struct Buffer {
    engine::Address address;
    std::uint64_t bytes;
    CUcontext owner;       // null: the GPU's
    std::uint64_t id = 0;  // of this GPU's buffers, ever; where it is asked for
};

// Where a buffer is, as the program has it.
struct WhereBuffer {
    engine::Address address;
    std::uint64_t bytes;  // of its chunks
    std::uint64_t resident_bytes;
    std::uint64_t pinned_bytes;
};

// Memory in use where it is, on the host, although its address does not lead there (Port::maps_host_memory).
struct HostCopy {
    engine::Address address;
    std::uint64_t bytes;
    engine::Address host;  // pinned
};

// The memory of a part of a buffer, and how far into the buffer that is.
struct BufferPiece {
    std::uint64_t offset;
    Block block;
};

// What naming a piece of work needs, kept for the next one.
struct NamingScratch {
    // Where a chunk stands among the needs of the work that was named last, and which that was; by ChunkId.
    struct Named {
        std::uint64_t naming = 0;
        std::size_t index = 0;
    };
    std::vector<Named> named;
    std::uint64_t namings = 0;  // ever begun

    // What addresses were found to mean, by a hash of them, while nothing comes or goes (memory_changes).
    struct Meaning {
        std::uint64_t changes = 0;
        std::vector<engine::Address> addresses;
        std::size_t written = 0;  // of these, the first
        std::vector<ChunkRequest> needs;
    };
    std::vector<Meaning> meanings;
    std::uint64_t changes = 0;  // when one was looked for last

    std::vector<engine::ChunkId> told;   // room for what the policy is told of it
    std::vector<std::uint8_t> accesses;  // of each of those, where it wants to know
};

// Thread-safe. Calls return what the program is to get.
class Session {
  public:
    ~Session();
    // For `gpu`, behind `port`. `settings` outlives the session. Null, and why, when no addresses can be
    // reserved.
    static std::unique_ptr<Session> open(Gpu gpu, std::unique_ptr<device::Port> port,
                                         std::unique_ptr<engine::Ranking> ranking, const Settings& settings,
                                         CUresult& error);

    CUdevice device() const { return core_->device; }
    CUcontext context() const { return context_; }  // through which it works; null: it rests

    // A buffer of `bytes`, contents undefined, at an address that is its own for life.
    // CUDA_ERROR_OUT_OF_MEMORY beyond the GPU and the host limit together; nothing is lost then. It goes with
    // `owner`, or, null, with the GPU's last context. A caller that `collects` may have memory to give back:
    // it may be refused for once (LMS_SOFT_LIMIT).
    CUresult allocate(std::uint64_t bytes, engine::Address& address, CUcontext owner = nullptr,
                      bool collects = false);
    // The same in stream order: memory freed earlier on this stream may come back at once.
    CUresult allocate_on(CUstream stream, std::uint64_t bytes, engine::Address& address);
    // Whether a buffer starts at `address` that has not been freed.
    bool can_free(engine::Address address);
    // Frees that. The caller has waited for the work that uses it.
    CUresult free(engine::Address address);
    // Waits for the work of `context`, as cuCtxSynchronize does, but for what is captured,
    // which that would end. Nothing: it cannot be known when all of it is over.
    std::optional<CUresult> wait_beside_captures(CUcontext context);
    // The same while copies of the shim's own are under way in that context, for which cuCtxSynchronize would
    // wait too. Nothing: there are none, or it cannot be known what the program has given it.
    std::optional<CUresult> wait_beside_moves(CUcontext context);
    // Frees it once `stream` has reached this point. `going` is called, without a lock, when the driver
    // cannot refuse any more, and before the address may be given out again.
    CUresult free_on(
        CUstream stream, engine::Address address, const std::function<void()>& going = [] {});

    // Memory of a handle of the program's own, which is where the program maps it (program/address_book.h):
    // of the calls below, those that name one handle come one at a time.
    //
    // A buffer of `bytes`, known by `home`, that no memory is taken for before it is mapped, and that goes
    // with forget() alone. CUDA_ERROR_OUT_OF_MEMORY as for allocate().
    CUresult create(std::uint64_t bytes, engine::Address& home, bool collects = false);
    void forget(engine::Address home);  // it is mapped nowhere
    // Whole, at `address`, where nobody may reach it yet. Answers what the driver does.
    CUresult map(engine::Address home, engine::Address address);
    CUresult unmap(engine::Address home, engine::Address address);
    CUresult set_access(engine::Address home, engine::Address address,
                        std::span<const CUmemAccessDesc> access);
    // Makes `real`, a handle of the driver's of the same size, what the program has instead: its contents,
    // and what it is mapped at. It is forgotten then. Nothing, and nothing changed: work uses it.
    std::optional<CUresult> hand_over(engine::Address home, CUmemGenericAllocationHandle real);
    // Whether some does; waits until none does, while other calls may name the handle: false if that takes
    // long.
    bool is_used(engine::Address home);
    bool await_unused(engine::Address home);

    // Whether an address is from this session's span, in a buffer or not. No lock: the span never changes.
    bool spans(engine::Address address) const { return core_->span.has_buffer(address); }
    engine::Address span_begin() const { return core_->span.begin; }
    engine::Address span_end() const { return core_->span.app_end(); }
    // Whether it is of the addresses that the session has taken: its span, and the aliases of its blocks.
    bool reserved(engine::Address address) const { return core_->span.has(address); }
    // Every mapping of a buffer is a multiple of it.
    std::uint64_t granularity() const { return core_->granularity; }
    // The buffer that holds `address`; for memory that the program maps, all it mapped there without a gap.
    std::optional<Buffer> buffer_at(engine::Address address);
    // False where [address, address + bytes) does not lie within one buffer as the program knows it (or
    // within what it has mapped without a gap), and the driver might not see it. No lock while nothing moves
    // and every buffer is mapped to its end and no further.
    bool holds(engine::Address address, std::uint64_t bytes);
    // The buffer that name() takes `address` to mean: the one that holds it, and in the gap beside a
    // buffer that one, between two the nearer, for pointers past the end and to before the start. `bytes` is
    // of its chunks.
    std::optional<Buffer> buffer_near(engine::Address address);

    // Appends to `needs`, which are empty, the chunks of the buffers that the addresses lie in, whole, and
    // those that the ranges touch; each once. Takes time in proportion to what is named.
    void name(std::span<const engine::Address> addresses, std::span<const Range> ranges,
              std::pmr::vector<ChunkRequest>& needs);

    // What work would name here, as it is now, in bytes.
    struct Named {
        std::uint64_t bytes = 0;        // of what it brings in, or finds
        std::uint64_t aside_bytes = 0;  // of what it holds where it is (ChunkRequest::aside)
        std::uint64_t beside_bytes =
            0;  // of what else cannot leave; 0 where missing memory can be used in place
        std::uint64_t budget_bytes = 0;
        bool lacks = false;     // some of `bytes` is on the host
        bool in_place = false;  // kernels can use that there
    };
    Named named(const WorkingSet& reach);

    // Finds what `work` reaches here, brings it in and makes its stream wait for it. After success submit the
    // work, unless it is nothing here, then call submitted(), whether the driver took it or not.
    CUresult acquire(Work& work);
    void submitted(Work& work);
    // Appends where what the work uses in place is, if not at its address. It stays there until submitted().
    void host_copies(const Work& work, std::vector<HostCopy>& copies);
    // Between the two, while the work waits for others to move something: it is not about to be submitted,
    // and about to be again, which is answered like acquire().
    void suspend(Work& work);
    CUresult resume(Work& work);
    // While suspended: lets go of what the work holds, where it can be used in host memory as well; resume()
    // holds it again wherever it is then.
    void give_up(Work& work);

    // Brings `needs` in, waits until they are filled, and keeps them on the device until unpin_resident().
    CUresult pin_resident(std::span<const ChunkRequest> needs, ResidentPins& kept);
    void unpin_resident(const ResidentPins& kept);
    // They stay so until their buffers are freed; nobody ends that.
    void leave_pinned(const ResidentPins& kept);
    // Work may reach what was kept without naming it, from here until unpin_reached(), after which it stays
    // until the work submitted so far is done.
    void reached();
    void unpin_reached(const ResidentPins& kept);

    // What the program asks for by <lms/lms.h>. `bytes` from `address` on lie in one buffer.
    enum class Asked { Done, NotManaged, NoRoom, Busy };
    // Until unpin() of the same, or its free.
    Asked pin(engine::Address address, std::uint64_t bytes);
    bool unpin(engine::Address address, std::uint64_t bytes);  // false: there is no such pin
    Asked prefetch(engine::Address address, std::uint64_t bytes);
    Asked evict(engine::Address address, std::uint64_t bytes);
    // All that can leave the device does, and what it took goes back to the driver.
    Asked pause();
    void resume_paused();
    std::vector<WhereBuffer> snapshot();
    // Decides what goes from now on.
    void rank_by(std::unique_ptr<engine::Ranking> ranking);
    // limit_now has changed.
    void limit_changed();
    // Others may use the GPU too from now on; null: they do not.
    void share_by(std::unique_ptr<executor::GpuShare> share);
    void share_on(const util::ShareTerms& terms);  // if it is shared
    // The same of host memory; `claims` outlive it.
    void claim_host_by(executor::HostClaims* claims);
    std::uint64_t give_back_host(std::uint64_t lacking_bytes);  // of what no buffer needs; how many bytes
    // Gives back what others lack; and when to, in a process whose program makes no calls.
    void look_at_host_claims();
    util::Clock::duration host_look_is_due_in();
    // Gives back what no buffer has needed since the last call.
    void give_back_idle();
    bool is_shared() const { return share_ && share_->is_shared(); }
    // Whether what others have of it is to be looked at; then gives back what is beyond this process's share.
    bool share_is_due() const { return share_ && share_->is_due(); }
    // The helper looks while the program makes no calls.
    enum class Looks { Program, Helper };
    void look_at_share(Looks who = Looks::Program);
    executor::GpuShare* share() const { return share_.get(); }  // null: it is not shared
    // Has a helper look then, if it is shared (idle_helper.h).
    void help_while_idle();

    // Makes room for memory the program gets from the driver itself; the bytes given up.
    std::uint64_t reclaim(std::uint64_t bytes);
    // For a thread that waits: moves what is foretold, as far as that goes now. False if there is no more to
    // it.
    bool move_ahead();
    // What the program has given the GPU so far, as far as there are fences: in one stream, as the calling
    // thread knows it, or in all. And whether any of that is unfinished.
    std::vector<engine::Use> given(CUstream stream);
    std::vector<engine::Use> given();
    bool unfinished(std::vector<engine::Use>& given);
    // Works of that stream that are not known to be over.
    std::uint64_t unfinished_in(CUstream stream);
    // The program has waited for some of that: the trace is told what is over.
    void waited();
    // Finds out what others have taken of the GPU since the last look.
    void look_at_budget();

    std::uint64_t largest_chunk() const;  // bytes
    // Largest number of bytes one copy should name at once, so that a buffer larger than the GPU is copied in
    // pieces: a multiple of largest_chunk(), and with that of every element that a memset knows.
    std::uint64_t piece_bytes() const;
    CUresult visible_memory(device::MemoryInfo& info);

    // Work on `device` may reach this GPU's buffers from now on.
    CUresult admit(CUdevice device);

    // Contexts of the program's. The session works through one of them, and rests, without memory, when there
    // is none left.
    //
    // `context` is current; a session that rests works through it from now on.
    CUresult wake(CUcontext context);
    bool awake() const { return context_ != nullptr; }
    // As from the moment that something has to move.
    void look_at_all_work();

    // Tells a trace that has begun (trace/writer.h) what there is; all work is looked at until it has ended.
    // One thread at a time.
    void follow_trace();
    bool keeps_program_memory() const;
    bool works_through(CUcontext context) const { return context_ == context; }
    // Looks which work is over, so that what told of it is asked no more.
    void see_work_over();
    // `context`, whose work is done, may be about to go; `next` is another of this GPU's, or null. It has not
    // gone.
    void context_ending(CUcontext context, CUcontext next);
    void context_stays(CUcontext context);
    // The buffers that go with `context`: its own, and all if there is no other.
    std::vector<Buffer> buffers_of(CUcontext context);
    // It is gone, and so are they and `streams`, those of it that were known.
    void context_gone(CUcontext context, std::span<const CUstream> streams);

    // A call that nobody knows has returned: leaves fences behind all that any stream has been given
    // (executor/pressure.h). False: not all could be fenced so.
    bool fence_all_streams();
    // Of the program's streams, by a thread that may use them, before the driver is told: what they were
    // given before the first move counts as unfinished until they have passed it. One that is `captured`
    // holds nothing that capture_nears() was not told of. stream_ended() follows, once it is not among
    // known_streams() any more.
    void stream_ends(CUstream stream, bool captured);
    void stream_ended(CUstream stream);
    // A capture is about to begin on it, or may be about to reach it; while a `blocking` one is captured
    // nobody may use legacy streams. False if what it was given could not be fenced.
    bool capture_nears(CUstream stream, bool blocking);

  private:
    void rest(executor::SessionLock& lock) LMS_LOCKED;
    std::vector<ChunkRequest> requests_at(engine::Address address, std::uint64_t bytes);
    Asked bring_in_asked(std::span<const ChunkRequest> needs, ChunkPins& hold,
                         executor::SessionLock& lock) LMS_LOCKED;
    Session(Gpu gpu, std::unique_ptr<device::Port> port, std::unique_ptr<engine::Ranking> ranking);
    std::optional<engine::AllocationId> enter(std::uint64_t bytes, bool collects,
                                              executor::SessionLock& lock) LMS_LOCKED;
    CUresult replace(engine::AllocationId id, CUmemGenericAllocationHandle real,
                     executor::SessionLock& lock) LMS_LOCKED;
    CUresult copy_to(engine::Address alias, std::uint64_t bytes, CUmemGenericAllocationHandle real,
                     std::span<const BufferPiece> pieces) LMS_UNLOCKED;
    bool will_be_placed(engine::AllocationId id, executor::SessionLock& lock) LMS_LOCKED;
    CUresult place(engine::AllocationId id, executor::SessionLock& lock) LMS_LOCKED;
    void place_together(std::span<const engine::ChunkId> chunks, executor::SessionLock& lock) LMS_LOCKED;
    CUresult place_chunk(engine::ChunkId id, executor::SessionLock& lock) LMS_LOCKED;
    struct NewMemory {
        engine::ChunkId chunk;
        Block block;
    };
    CUresult map_new(std::span<const NewMemory> found, executor::SessionLock& lock) LMS_LOCKED;
    void find(std::span<const engine::Address> addresses, std::span<const engine::Address> only_read,
              std::span<const Range> ranges, std::pmr::vector<ChunkRequest>& needs) LMS_LOCKED;
    void forget_stream(StreamKey key) LMS_LOCKED;
    void forget_streams(std::span<const CUstream> streams) LMS_LOCKED;
    bool fence_earlier(CUstream stream);
    void give_host_memory(const ChunkRequest& need, executor::SessionLock& lock) LMS_LOCKED;
    executor::FencePtr announce(Work& work, executor::SessionLock& lock) LMS_LOCKED;
    void tell_policy(const Work& work, StreamKey stream) LMS_LOCKED;
    void tell_more(const Work& work, StreamKey stream, std::span<const engine::ChunkId> told) LMS_LOCKED;
    void look_at_depth(Work& work, StreamKey stream, executor::SessionLock& lock) LMS_LOCKED;
    CUresult wait_for_fill(const Work& work, const executor::FencePtr& fence);
    CUresult begin_unseen(Work& work);
    void end_unseen(const Work& work);
    bool sees_use(executor::SessionLock& lock) LMS_LOCKED;

    std::atomic<bool> padded_{false};  // some buffer's mappings go on past its end
    std::atomic<CUcontext> context_;   // worked through; null: it rests
    std::unique_ptr<device::Port> port_;
    std::unique_ptr<engine::Ranking> ranking_;
    std::unique_ptr<executor::Core> core_;
    std::unique_ptr<executor::Migrator> migrator_;
    NamingScratch scratch_ LMS_GUARDED;
    std::unique_ptr<executor::GpuShare> share_;  // null: the GPU is as if it were this process's alone
    // As its helper saw it last:
    std::uint64_t begun_before_ LMS_GUARDED = 0;  // submissions
    bool was_in_use_ LMS_GUARDED = false;
    std::unique_ptr<IdleHelper> idle_helper_;
};

}  // namespace lms::session

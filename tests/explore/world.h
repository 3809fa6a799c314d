// A small GPU, a program's threads, and the engine between them, as one value: every step is an action, and
// what could happen next is a list. Memory is not bytes but whether a block holds what was last written to a
// chunk.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shim/engine/engine.h"
#include "shim/engine/rules.h"

namespace explore {

using namespace lms::engine;

// A chunk that work names, by its place in the case: each buffer is one chunk.
struct Named {
    std::uint8_t slot;
    bool written = true;
    bool overwritten = false;
};

// A piece of work of one thread.
struct WorkPlan {
    enum class Kind : std::uint8_t {
        Kernel,
        Free,      // of names[0].slot, once the work on it has run
        PinGraph,  // names[0].slot: a graph records its mapping; a later Unpin ends that
        UnpinGraph,
    };
    Kind kind = Kind::Kernel;
    std::uint8_t stream = 0;
    std::vector<Named> names = {};
    bool opaque = false;
    bool unseen = false;
    // Written by it though it is not named: what opaque and unseen work may do.
    std::optional<std::uint8_t> hidden = std::nullopt;
};

// What is explored: buffers of one chunk each, and threads.
struct Case {
    std::string name;
    std::uint8_t buffers;
    std::uint8_t on_device;   // of these, from the start
    std::uint8_t budget;      // chunks
    std::uint8_t host_limit;  // chunks
    std::vector<std::vector<WorkPlan>> threads;
    std::uint8_t refusals = 0;  // so many commands, at any moments, the driver may refuse
    bool earlier = false;       // work from before pressure runs, and may write any chunk
    bool in_place = false;      // a thread may use in host memory what is there
    bool shrinks = false;       // the budget falls by a chunk at any moment
    bool sees_all_writes = true;
    bool foresight = false;  // chunks come in that no work needs yet
    bool cancels = false;    // evictions end at any moment
    bool foretells = false;  // chunks leave because room is foretold to be lacking
};

struct Action {
    enum class Kind : std::uint8_t {
        Acquire,         // thread `a` holds what it needs and is about to submit
        AcquireInPlace,  // the same, what is missing in host memory
        Announce,        // and hands it to the driver
        Submitted,       // it has left a fence and lets go
        Free,            // thread `a`: its buffer is killed
        Remove,          // and taken away
        Pin,
        Unpin,
        Run,              // the next piece of stream `a` runs
        Deliver,          // the engine learns what fences have passed
        Evict,            // victim number `a`; `b`: one more ahead of need, or 2: for room that is foretold
        MakeHostBlock,    // `a`: 1 made, 0 refused
        EnqueueCopies,    // `a`: 1 done, 0 refused
        RemapOut,         // begins; `a`: of what goes for what is foretold alone
        RemappedOut,      // `a`: 1 done, 0 refused
        PageIn,           // chunk `a`; `b`: for work that overwrites it, or writes it, or reads it
        MakeDeviceBlock,  // `a`: 1 made, 0 refused
        PagedIn,          // `a`: 1 done, 0 refused
        Cancel,           // evictions, as a call that needs memory soon does
        ForgetRefusals,   // a call was out of memory, for the driver let nothing go
        Spare,            // a retained copy, for want of host memory
        Shrink,
        EarlierOver,
        EarlierWrites,  // chunk `a`
    };
    Kind kind;
    std::uint8_t a = 0;
    std::uint8_t b = 0;
};
std::string to_string(const Action& action);

// Takes the victim that the explorer chose. Stateless but for that.
class ChosenVictim final : public Ranking {
  public:
    void added(const Added&) override {}
    void freed(ChunkId) override {}
    void removed(ChunkId) override {}
    void used(ChunkId) override {}
    void resident(ChunkId) override {}
    void evicted(ChunkId) override {}
    void work(std::span<const ChunkId>, const WorkFacts*) override {}
    ChunkId next_victim(const VictimRequest&, const std::function<bool(ChunkId)>& eligible) override;
    std::size_t upcoming(std::span<ChunkId>) override { return 0; }
    std::uint64_t eviction_start(std::uint64_t budget, std::uint64_t) override { return budget; }

    std::uint8_t pick = 0;
    std::uint8_t chunks = 0;
};

class World {
  public:
    World(const Case& plan, ChosenVictim& victims);
    World(const World&) = default;
    World(World&&) = default;

    // What may happen next.
    void actions(std::vector<Action>& out) const;
    // Does it; empty, or what work found wrong.
    std::string apply(const Action& action);
    // Empty, or what is wrong with a state. The same for states of one fingerprint.
    std::string check() const;
    // The same for states that the engine and the program cannot tell apart.
    std::uint64_t fingerprint() const;
    // No thread has anything left to do.
    bool is_over() const;

  private:
    static constexpr std::uint64_t kBytes = 64;  // of a chunk
    static constexpr std::uint8_t kStreams = 4, kIn = 2, kOut = 3;
    static constexpr Address kNowhere = 0, kMoving = 1;

    // What a stream has been given: a piece of work, or a copy.
    struct Piece {
        enum class Is : std::uint8_t { Work, Copy, Fence };
        Is is;
        std::uint8_t thread = 0, work = 0;
        Address from = 0, to = 0;
        std::optional<std::pair<std::uint8_t, std::uint64_t>> after =
            std::nullopt;  // a fence: stream, position
    };
    struct Stream {
        std::vector<Piece> pieces;
        std::uint64_t recorded = 0;  // fences
        std::uint64_t passed = 0;
    };
    struct Thread {
        enum class At : std::uint8_t { Idle, Begun, Driver, Freeing };
        std::uint8_t next = 0;
        At at = At::Idle;
        ChunkPins pins;
        std::uint64_t submission = 0;
    };
    // The migrator's command that is under way.
    struct Command {
        enum class Is : std::uint8_t { None, HostBlock, Copies, RemapsOut, DeviceBlock, Fills };
        Is is = Is::None;
        NextEviction victim{};
        bool foretold = false;
        std::vector<RemapOut> out;
        ChunkRequest need{};
        Fills fills;
    };

    struct Slot {
        AllocationId buffer = 0;
        ChunkId chunk = kNoChunk;
        std::uint64_t serial = 0;
        bool alive = false;
        bool written = false;  // by work that has run
        Address mapped = kNowhere;
        std::uint64_t keep = 0;
    };

    std::uint8_t slot_count() const { return static_cast<std::uint8_t>(slots_.size()); }
    std::uint8_t thread_count() const { return static_cast<std::uint8_t>(threads_.size()); }
    const WorkPlan* next_of(std::size_t thread) const;
    std::vector<ChunkRequest> requests(const WorkPlan& work) const;
    bool runnable(std::uint8_t stream) const;
    bool uses_pending(std::uint8_t slot) const;
    Use fence(std::uint8_t stream);
    Block new_block(Place place);
    bool holds(Address block, std::uint8_t slot) const { return contents_.at(block) == slot + 1; }
    void write(std::uint8_t slot);
    std::string touch(std::uint8_t slot, bool reads, const char* by);
    std::string run(std::uint8_t stream);
    bool copy_in_pending(std::uint8_t slot) const;
    bool host_room() const;
    void begin_fill(const Block& block);

    const Case* plan_;
    ChosenVictim* victims_;
    Engine engine_;
    std::array<Stream, kStreams> streams_;
    std::vector<Thread> threads_;
    std::vector<Slot> slots_;
    std::vector<std::uint8_t> contents_;  // by alias: slot + 1 whose latest contents a block has; 0: others
    Command command_;
    bool shrunk_ = false;
    std::uint8_t refused_ = 0;
    std::string broken_;
};

}  // namespace explore

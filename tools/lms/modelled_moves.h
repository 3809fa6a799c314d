// The shim's executor (shim/executor) as a replay has it: it asks the same engine, in the same order, but
// moves nothing. Copies take as long as their bytes take on a link, one each way at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "shim/engine/arena.h"
#include "shim/engine/engine.h"
#include "shim/trace/events.h"
#include "tools/lms/modelled_fences.h"

namespace lms::tool {

// What it counts.
struct Moved {
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::uint64_t fills = 0;
    std::uint64_t fills_ahead = 0;  // of those, as foretold, before they were needed
    std::uint64_t evictions = 0;
};

class ModelledMoves {
  public:
    struct Costs {
        double in_bytes_per_s;
        double out_bytes_per_s;
        double remap_seconds;
    };

    // `streams` of the program. Moves are made by the program's thread: what they take it is added to `now`.
    // `apart`: instead of that by one of their own, which waits for the chunk that the ranking names until
    // that is idle, and copies nothing out before it has to go. `ranking` and `now` are borrowed.
    ModelledMoves(const engine::EngineOptions& options, engine::Ranking& ranking, std::size_t streams,
                  bool maps_host, const Costs& costs, bool apart, double& now);

    engine::Engine& engine() { return engine_; }
    const engine::Residency& residency() const { return engine_.residency(); }
    ModelledFences& fences() { return fences_; }
    const Moved& moved() const { return moved_; }

    // When the link that such a copy of the program's takes is free; null: it takes none.
    double* link_of(trace::CopyWay way);
    // Takes note of what has ended by now.
    void look();
    // A new buffer, on the GPU as long as there is room, else on the host. Nothing: there is no address for
    // it.
    std::optional<engine::AllocationId> allocate(std::uint64_t asked_bytes,
                                                 std::span<const std::uint64_t> chunk_bytes);
    // Gives it back, whose copies in are over then.
    void release(engine::AllocationId id);
    // What is on the GPU beyond it goes.
    void change_budget(std::uint64_t bytes);
    // Holds `needs`, on the GPU as far as that is possible. False: some found no room.
    bool bring_in(std::span<const engine::ChunkRequest> needs, engine::ChunkPins& hold);
    // Moves what is foretold, as far as that takes no wait. False: nothing is that could move.
    bool move_ahead();

  private:
    enum class Step { Moved, Waited, Impossible };
    static constexpr std::size_t kFewFills = 2;  // Migrator's
    static constexpr int kMostStepsAhead = 64;   // of one look, as foresight.cpp has

    void settle_frees();
    double& clock() { return apart_ ? moves_at_ : now_; }
    Step wait_until(double time);
    Step step(std::span<const engine::ChunkRequest> missing);
    Step make_room(std::uint64_t bytes, std::uint64_t limit);
    Step await_idle(std::uint64_t bytes);
    void await_named(std::uint64_t bytes);
    double free_at() const;
    bool bring_in_ahead();
    bool evict_ahead();
    bool step_ahead(std::span<const engine::ChunkId> next);
    bool start_evictions(const engine::VictimRequest& wanted, std::uint64_t ahead);
    void enqueue_copies();
    bool complete_evictions(std::uint64_t bytes);
    bool remap_out(std::span<const engine::RemapOut> remaps);
    void page_in(std::span<const engine::PageIn> pages);
    engine::Use copy(engine::TimelineId link, std::uint64_t bytes, double bytes_per_s);
    std::optional<engine::Block> device_block(std::uint64_t bytes, std::uint64_t limit);
    engine::Block host_block(std::uint64_t bytes);
    engine::Block new_block(engine::Place place, std::uint64_t bytes);
    void trim(std::uint64_t bytes);

    engine::Engine engine_;
    engine::Arena arena_;
    ModelledFences fences_;
    const engine::TimelineId in_, out_;
    const bool maps_host_;
    const Costs costs_;
    const bool apart_;
    double& now_;
    double moves_at_ = 0;
    double in_free_ = 0, out_free_ = 0;
    std::uint64_t blocks_ = 0;
    Moved moved_;
};

}  // namespace lms::tool

#include "tools/lms/modelled_moves.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace lms::tool {

using engine::Block;
using engine::ChunkId;
using engine::ChunkRequest;
using engine::Place;

namespace {

// A damaged trace may have copies of no rate, which would never end.
double speed(double bytes_per_s) {
    return bytes_per_s >= 1 ? std::min(bytes_per_s, 1e18) : 1;
}

}  // namespace

ModelledMoves::ModelledMoves(const engine::EngineOptions& options, engine::Ranking& ranking,
                             std::size_t streams, bool maps_host, const Costs& costs, bool apart, double& now)
    : engine_(options, ranking),
      arena_(options.begin, options.bytes, options.granularity, 0),
      fences_(streams + 2, engine_.timelines()),
      in_(static_cast<engine::TimelineId>(streams)),
      out_(in_ + 1),
      maps_host_(maps_host),
      costs_{speed(costs.in_bytes_per_s), speed(costs.out_bytes_per_s), costs.remap_seconds},
      apart_(apart),
      now_(now) {}

ModelledMoves::Step ModelledMoves::wait_until(double time) {
    clock() = std::max(clock(), time);
    return Step::Waited;
}

void ModelledMoves::look() {
    moves_at_ = std::max(moves_at_, now_);
    fences_.poll(clock());
    engine_.complete_moves();
}

void ModelledMoves::settle_frees() {
    look();
    const auto unheld = [&](engine::AllocationId id) { return !engine_.is_held(id); };
    while (const auto id = engine_.pending_frees.take_finished(engine_.timelines(), unheld)) release(*id);
}

// ------------------------------------------------------------ memory

Block ModelledMoves::new_block(Place place, std::uint64_t bytes) {
    engine_.pool(place).begin_create(bytes);
    return {.place = place, .alias = ++blocks_, .bytes = bytes};
}

void ModelledMoves::trim(std::uint64_t bytes) {
    engine::BlockPool& pool = engine_.pool(Place::Device);
    for (const Block& block : pool.take_for_driver(bytes)) pool.given_back(block.bytes);
}

std::optional<Block> ModelledMoves::device_block(std::uint64_t bytes, std::uint64_t limit) {
    using Is = engine::Engine::Room::Is;
    for (bool recovered = false;; recovered = true) {
        const engine::Engine::Room room = engine_.device_room(bytes, limit, recovered);
        if (room.is == Is::Taken) return room.block;
        if (room.is == Is::None) return std::nullopt;
        if (room.is == Is::Create) return new_block(Place::Device, bytes);
        if (room.is == Is::Trim) trim(room.bytes);
    }
}

Block ModelledMoves::host_block(std::uint64_t bytes) {
    const auto block = engine_.pool(Place::Host).take(bytes);
    return block ? *block : new_block(Place::Host, bytes);
}

std::optional<engine::AllocationId> ModelledMoves::allocate(std::uint64_t asked_bytes,
                                                            std::span<const std::uint64_t> chunk_bytes) {
    settle_frees();
    const std::uint64_t all = std::accumulate(chunk_bytes.begin(), chunk_bytes.end(), std::uint64_t{0});
    const auto address = all == 0 ? std::nullopt : arena_.take(all);
    if (!address) return std::nullopt;
    const engine::AllocationId id = engine_.add(*address, asked_bytes, chunk_bytes);
    for (const ChunkId chunk : residency().allocation(id).chunks) {
        const std::uint64_t bytes = residency().chunk(chunk).bytes;
        std::optional<Block> block = device_block(bytes, engine_.eviction_start());
        if (!block && maps_host_) block = host_block(bytes);
        if (!block) continue;
        engine_.begin_placing(chunk);
        engine_.placed(chunk, *block, true);
    }
    return id;
}

void ModelledMoves::release(engine::AllocationId id) {
    while (engine_.must_wait_to_remove(id)) {
        wait_until(fences_.next_end());
        look();
    }
    const engine::Allocation buffer = residency().allocation(id);
    std::vector<Block> blocks;
    for (const ChunkId chunk : buffer.chunks) {
        engine_.drop_copy(chunk);
        const engine::State where = residency().chunk(chunk).state;
        const engine::Backing& backing = engine_.backing()[chunk];
        if (where != engine::State::Empty)
            blocks.push_back(where == engine::State::OnHost ? backing.host : backing.device);
    }
    engine_.remove(id);
    for (const Block& block : blocks) engine_.put_freed(block);
    arena_.give_back(buffer.address, buffer.bytes);
}

void ModelledMoves::change_budget(std::uint64_t bytes) {
    engine_.set_budget(bytes);
    const auto excess = [&] {
        const std::uint64_t held = engine_.pool(Place::Device).held_bytes();
        return held - std::min(held, bytes);
    };
    for (trim(excess()); excess() > 0; trim(excess())) {
        settle_frees();
        if (make_room(excess(), bytes) == Step::Impossible) return;
    }
}

// ------------------------------------------------------------ what work needs (Migrator::hold_all and on)

bool ModelledMoves::bring_in(std::span<const ChunkRequest> needs, engine::ChunkPins& hold) {
    std::vector<ChunkRequest> missing;
    if (engine_.present(needs)) return engine_.hold(needs, hold, missing);
    engine_.cancel_stale();
    bool all = true;
    for (; all && !engine_.hold(needs, hold, missing); missing.clear()) {
        if (step(missing) == Step::Impossible) {
            if (maps_host_) engine_.hold_in_place(needs, missing, hold);
            all = false;
        } else {
            engine_.drop(hold);
        }
    }
    if (!apart_) start_evictions({0}, engine_.ahead_bytes());
    return all;
}

ModelledMoves::Step ModelledMoves::step(std::span<const ChunkRequest> missing) {
    settle_frees();
    std::vector<ChunkRequest> able;
    std::uint64_t all = 0;
    const ChunkRequest* busy = nullptr;
    for (const ChunkRequest& need : missing) {
        if (!residency().may_come_in(need.chunk)) {
            busy = &need;
        } else {
            able.push_back(need);
            all += residency().chunk(need.chunk).bytes;
        }
    }
    if (able.empty()) {
        if (!busy || !residency().in_flight(busy->chunk)) return Step::Impossible;
        return wait_until(fences_.end_of_first(residency().chunk(busy->chunk).uses));
    }
    for (const std::uint64_t limit : {engine_.eviction_start(), engine_.budget_bytes()}) {
        std::vector<engine::PageIn> fills;
        std::uint64_t taken = 0;  // and not yet counted as on the device
        for (const ChunkRequest& need : able) {
            const auto block =
                device_block(residency().chunk(need.chunk).bytes, limit - std::min(limit, taken));
            if (!block) continue;
            fills.push_back({need, *block});
            taken += block->bytes;
        }
        if (!fills.empty()) {
            page_in(fills);
            return Step::Moved;
        }
        const std::uint64_t next =
            engine_.retained().empty() ? all : residency().chunk(able.front().chunk).bytes;
        const Step made = make_room(next, limit);
        if (made != Step::Impossible || limit == engine_.budget_bytes()) return made;
    }
    return Step::Impossible;
}

ModelledMoves::Step ModelledMoves::make_room(std::uint64_t bytes, std::uint64_t limit) {
    const std::uint64_t wanted = residency().device_bytes() + bytes;
    const std::uint64_t out = wanted > limit ? std::min(bytes, wanted - limit) : bytes;
    const bool comes = !engine_.filling().empty();
    const auto came_at = [&] { return fences_.end_of(engine_.backing()[engine_.filling().front()].fill); };
    // What is chosen later is chosen better; by who knows the future, once all is there to choose from.
    if (comes && (apart_ || engine_.filling().size() >= kFewFills) && engine_.pending_eviction_bytes() < out)
        return wait_until(came_at());
    const bool enough = start_evictions({out}, apart_ ? 0 : engine_.ahead_bytes());
    if (complete_evictions(out)) return Step::Moved;
    if (!engine_.pending_evictions().empty())
        return wait_until(fences_.end_of(engine_.pending_evictions().front().copied));
    if (enough) return Step::Waited;
    if (limit < engine_.budget_bytes()) return Step::Impossible;
    return await_idle(bytes);
}

// When the first buffer freed in stream order can be given back.
double ModelledMoves::free_at() const {
    return engine_.pending_frees.empty() ? ModelledFences::kNever
                                         : fences_.end_of(engine_.pending_frees.oldest().free);
}

ModelledMoves::Step ModelledMoves::await_idle(std::uint64_t bytes) {
    const ChunkId busy = engine_.busy_victim(bytes, [](const engine::Chunk&) { return true; });
    const bool frees = !engine_.pending_frees.empty();
    if (busy != engine::kNoChunk) {
        const std::vector<engine::Use>& uses = residency().chunk(busy).uses;
        std::uint64_t last = 0;
        for (const engine::Use& use : uses) last = std::max(last, fences_.number_of(use));
        if (frees && fences_.number_of(engine_.pending_frees.oldest().free) < last)
            return wait_until(free_at());
        return wait_until(fences_.end_of_first(uses));
    }
    if (!engine_.filling().empty())
        return wait_until(fences_.end_of(engine_.backing()[engine_.filling().front()].fill));
    return frees ? wait_until(free_at()) : Step::Impossible;
}

// Until the chunk that the ranking names of all is idle.
void ModelledMoves::await_named(std::uint64_t bytes) {
    for (;;) {
        const ChunkId named = engine_.busy_victim(bytes, [](const engine::Chunk&) { return true; });
        if (named == engine::kNoChunk || !residency().in_flight(named)) return;
        wait_until(fences_.end_of_first(residency().chunk(named).uses));
        look();
    }
}

// ------------------------------------------------------------ moves

double* ModelledMoves::link_of(trace::CopyWay way) {
    if (way == trace::CopyWay::ToGpu) return &in_free_;
    return way == trace::CopyWay::ToHost ? &out_free_ : nullptr;
}

engine::Use ModelledMoves::copy(engine::TimelineId link, std::uint64_t bytes, double bytes_per_s) {
    double& free = link == in_ ? in_free_ : out_free_;
    free = std::max(free, clock()) + static_cast<double>(bytes) / bytes_per_s;
    return fences_.add(link, free);
}

// False: too little can go.
bool ModelledMoves::start_evictions(const engine::VictimRequest& wanted, std::uint64_t ahead) {
    using Is = engine::NextEviction::Is;
    engine_.set_link_speeds(static_cast<std::uint64_t>(costs_.in_bytes_per_s),
                            static_cast<std::uint64_t>(costs_.out_bytes_per_s));
    engine::NextEviction next{Is::Enough};
    do {
        engine::VictimRequest now = wanted;
        if (apart_) {
            // One after the other.
            const std::uint64_t leaves = engine_.pending_eviction_bytes();
            if (leaves >= wanted.need_bytes) break;
            await_named(wanted.need_bytes);
            now.need_bytes = leaves + 1;
        }
        next = engine_.next_eviction(now, ahead, 0);
        if (next.is == Is::WantsHostBlock &&
            !engine_.begin_eviction(next.victim, next.serial, host_block(next.bytes), 0))
            break;
    } while (next.is == Is::WantsHostBlock || (apart_ && next.is == Is::Enough));
    enqueue_copies();
    return next.is != Is::NoVictims;
}

void ModelledMoves::enqueue_copies() {
    for (const engine::CopyOut& each : engine_.copies_to_enqueue())
        engine_.copy_enqueued(each.eviction, true, copy(out_, each.host.bytes, costs_.out_bytes_per_s));
}

// Whether one was.
bool ModelledMoves::complete_evictions(std::uint64_t bytes) {
    return remap_out(engine_.take_remaps_out(bytes));
}

bool ModelledMoves::remap_out(std::span<const engine::RemapOut> remaps) {
    for (const engine::RemapOut& remap : remaps) {
        clock() += costs_.remap_seconds;
        engine_.remapped_out(remap, true, std::nullopt);
        ++moved_.evictions;
        if (remap.copies) moved_.bytes_out += remap.host.bytes;
    }
    return !remaps.empty();
}

void ModelledMoves::page_in(std::span<const engine::PageIn> pages) {
    const engine::Fills fills = engine_.begin_page_in(pages);
    std::vector<engine::Filled> came;
    for (const engine::Fill& fill : fills.each) {
        clock() += costs_.remap_seconds;
        engine::Filled filled{.mapped = true, .waits = fill.copies || fill.clears};
        if (filled.waits) filled.end = copy(in_, fill.copies ? fill.block.bytes : 0, costs_.in_bytes_per_s);
        came.push_back(filled);
        if (!fill.copies) continue;
        ++moved_.fills;
        moved_.bytes_in += fill.block.bytes;
    }
    engine_.paged_in(fills, came);
}

// ------------------------------------------------------------ what is foretold (Migrator::move_ahead)

bool ModelledMoves::move_ahead() {
    const bool more_in = bring_in_ahead();
    return evict_ahead() || more_in;
}

bool ModelledMoves::evict_ahead() {
    using Is = engine::NextEviction::Is;
    look();
    remap_out(engine_.take_foretold_remaps_out());
    for (;;) {
        const engine::NextEviction next = engine_.next_foretold();
        if (next.is != Is::WantsHostBlock) return next.is == Is::Enough;
        if (!engine_.begin_eviction(next.victim, next.serial, host_block(next.bytes), 0, true)) return false;
        enqueue_copies();
    }
}

bool ModelledMoves::bring_in_ahead() {
    std::array<ChunkId, 8> next{};
    for (int steps = 0; steps < kMostStepsAhead; ++steps) {
        look();
        if (engine_.filling().size() >= kFewFills) return true;
        const std::size_t count = engine_.upcoming(next);
        if (count == 0) return false;
        if (!step_ahead(std::span(next).first(count))) return true;
    }
    return true;
}

bool ModelledMoves::step_ahead(std::span<const ChunkId> next) {
    const auto able = std::ranges::find_if(next, [&](ChunkId id) {
        const engine::Chunk& chunk = residency().chunk(id);
        return chunk.state == engine::State::OnHost && !residency().allocation(chunk.allocation).dead &&
               residency().may_come_in(id);
    });
    if (able == next.end()) return false;
    const std::uint64_t bytes = residency().chunk(*able).bytes;
    if (const auto block = device_block(bytes, engine_.eviction_start())) {
        const engine::PageIn fill{{*able, residency().chunk(*able).serial, false, false}, *block};
        page_in({&fill, 1});
        ++moved_.fills_ahead;
        return true;
    }
    start_evictions({bytes, engine::Purpose::Ahead, *able}, 0);
    return complete_evictions(bytes);
}

}  // namespace lms::tool

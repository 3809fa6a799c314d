// Chunks out to host memory, in two steps: the copy is enqueued ahead of need and no thread waits for it; the
// address is remapped when the room is wanted. In between a launch may claim the chunk back at no cost.
#include <algorithm>

#include "shim/engine/chunking.h"
#include "shim/engine/engine.h"

namespace lms::engine {

namespace {

// Such as come up once are over by the next try.
constexpr unsigned kRefusals = 3;

// Copies out that are enqueued before more is chosen to go for what is foretold.
constexpr int kFewCopies = 2;

}  // namespace

bool Engine::leaves(const PendingEviction& each) const {
    return residency_.chunk(each.chunk).state == State::Evicting &&
           backing_[each.chunk].eviction == each.eviction;
}

bool Engine::is_complete(const PendingEviction& each) const {
    return each.enqueued && residency_.timelines.finished(each.copied);
}

bool Engine::copies_under_way() const {
    return !filling_.empty() || std::ranges::any_of(pending_evictions_, [&](const PendingEviction& each) {
        return each.copies && !is_complete(each);
    });
}

void Engine::list(ChunkId victim, const Block& host, bool copies, std::uint64_t now_ns) {
    backing_[victim].eviction = ++evictions_;
    pending_evictions_.push_back({victim, evictions_, backing_[victim].device, host, now_ns, works_});
    pending_evictions_.back().copies = copies;
    pending_evictions_.back().enqueued = !copies;
}

NextEviction Engine::next_eviction(const VictimRequest& wanted, std::uint64_t ahead, std::uint64_t now_ns) {
    using Is = NextEviction::Is;
    const std::uint64_t all = wanted.need_bytes + ahead;
    for (std::uint64_t now = pending_eviction_bytes(); now < all; now = pending_eviction_bytes()) {
        const ChunkId victim =
            residency_.next_victim(asked_by({all - now, wanted.purpose, wanted.sooner}),
                                   [&](ChunkId id) { return !residency_.in_flight(id) && may_leave(id); });
        if (victim == kNoChunk) return {Is::NoVictims};
        const Chunk& chunk = residency_.chunk(victim);
        if (!needs_no_copy(victim)) return {Is::WantsHostBlock, victim, chunk.serial, chunk.bytes};
        // What comes after it is not begun before it is gone, or it would never go.
        if (now >= wanted.need_bytes) return {Is::Enough};
        if (!begin_clean_eviction(victim, now_ns)) return {Is::NoVictims};
    }
    return {Is::Enough};
}

NextEviction Engine::next_foretold() {
    using Is = NextEviction::Is;
    const auto under_way = std::ranges::count_if(
        pending_evictions_, [&](const PendingEviction& each) { return each.copies && !is_complete(each); });
    if (under_way >= kFewCopies) return {Is::Enough};
    if (opaque_busy()) return {Is::Enough};
    bool busy = false;
    const ChunkId victim = residency_.next_victim(asked_by({1, Purpose::Foretold}), [&](ChunkId id) {
        if (!may_leave(id) || needs_no_copy(id)) return false;
        const bool used = residency_.in_flight(id);
        busy |= used;
        return !used;
    });
    if (victim == kNoChunk) return {busy || under_way > 0 ? Is::Enough : Is::NoVictims};
    const Chunk& chunk = residency_.chunk(victim);
    return {Is::WantsHostBlock, victim, chunk.serial, chunk.bytes};
}

bool Engine::begin_clean_eviction(ChunkId victim, std::uint64_t now_ns) {
    if (opaque_busy() || !residency_.begin_out(victim)) return false;
    list(victim, backing_[victim].host, false, now_ns);
    return true;
}

bool Engine::begin_eviction(ChunkId victim, std::uint64_t serial, const Block& host, std::uint64_t now_ns,
                            bool foretold) {
    // Making the block may have taken time.
    if (!opaque_busy() && residency_.chunk(victim).serial == serial && residency_.begin_out(victim)) {
        list(victim, host, true, now_ns);
        pending_evictions_.back().foretold = foretold;
        return true;
    }
    put(host);
    return false;
}

ChunkId Engine::busy_victim(std::uint64_t bytes, const std::function<bool(const Chunk&)>& accept) {
    return residency_.next_victim(asked_by({bytes, Purpose::Wait}),
                                  [&](ChunkId id) { return may_leave(id) && accept(residency_.chunk(id)); });
}

std::vector<CopyOut> Engine::copies_to_enqueue() const {
    std::vector<CopyOut> copies;
    for (const PendingEviction& each : pending_evictions_) {
        if (!each.enqueued) copies.push_back({each.eviction, each.device, each.host});
    }
    return copies;
}

void Engine::copy_enqueued(std::uint64_t eviction, bool copied, const Use& end) {
    const auto each = std::ranges::find(pending_evictions_, eviction, &PendingEviction::eviction);
    each->enqueued = true;
    each->copied = end;
    // What was not copied is of no use, and complete: its memory is given back.
    if (!copied && backing_[each->chunk].eviction == eviction) residency_.cancel_out(each->chunk);
    sweep_evictions();
}

std::vector<RemapOut> Engine::take_remaps_out(std::uint64_t bytes) {
    return take_remaps_out(bytes, false);
}

std::vector<RemapOut> Engine::take_foretold_remaps_out() {
    return take_remaps_out(~std::uint64_t{0}, true);
}

std::vector<RemapOut> Engine::take_remaps_out(std::uint64_t bytes, bool foretold_alone) {
    std::vector<RemapOut> remaps;
    std::uint64_t sum = 0;
    for (auto it = pending_evictions_.begin(); it != pending_evictions_.end() && sum < bytes;) {
        const Chunk& chunk = residency_.chunk(it->chunk);
        if (!is_complete(*it) || !leaves(*it) || (foretold_alone && !it->foretold)) {
            ++it;
        } else if (residency_.allocation(chunk.allocation).dead) {
            residency_.cancel_out(it->chunk);
        } else {
            residency_.begin_remap(it->chunk);
            sum += chunk.bytes;
            // What was the copy is the chunk's memory from here on, or of no chunk.
            const auto kept = take_copy(it->chunk);
            remaps.push_back({it->eviction, it->chunk, it->device, it->host, it->copies, it->since_ns,
                              it->copies ? kept : std::nullopt});
            it = pending_evictions_.erase(it);
        }
    }
    remapping_ += static_cast<std::uint32_t>(remaps.size());
    return remaps;
}

void Engine::remapped_out(const RemapOut& remap, bool done, std::optional<std::uint64_t> digest) {
    --remapping_;
    const ChunkId id = remap.chunk;
    Backing& backing = backing_[id];
    if (remap.kept) put(*remap.kept);
    if (!done) {
        residency_.undo_remap(id);
        put(remap.host);
        backing.refusals = std::min(backing.refusals + 1, kRefusals);
        backing.refused_at = works_;
        return;
    }
    residency_.out(id);
    backing.refusals = 0;
    backing.host = remap.host;
    backing.digest = digest;
    put(remap.device);
}

std::uint64_t Engine::pending_eviction_bytes() const {
    std::uint64_t sum = 0;
    for (const PendingEviction& each : pending_evictions_) {
        if (leaves(each)) sum += each.device.bytes;
    }
    return sum;
}

void Engine::cancel_evictions() {
    for (const PendingEviction& each : pending_evictions_) {
        if (residency_.cancel_out(each.chunk)) disturbed_ = evictions_;
    }
}

void Engine::cancel_stale() {
    // Those that pass while moves follow one another; on steady work each copy is used within a few launches.
    constexpr std::uint64_t kWorks = 64;
    for (const PendingEviction& each : pending_evictions_) {
        if (leaves(each) && works_ - each.since_work > kWorks) residency_.cancel_out(each.chunk);
    }
}

std::uint64_t Engine::ahead_bytes() const {
    // While one chunk is remapped and filled, the next is copied.
    constexpr std::uint64_t kChunks = 2;
    // So many must have been let be.
    constexpr std::uint64_t kUndisturbed = 32;
    if (options_.strict) return 0;
    if (disturbed_ > 0 && evictions_ < disturbed_ + kUndisturbed) return 0;
    return kChunks * largest_chunk(budget_bytes_, options_.granularity);
}

void Engine::sweep_evictions() {
    std::erase_if(pending_evictions_, [&](const PendingEviction& each) {
        if (!is_complete(each) || leaves(each)) return false;
        if (each.copies) put(each.host);
        if (each.orphan) put(each.device);
        return true;
    });
}

bool Engine::may_leave(ChunkId id) const {
    constexpr std::uint64_t kWorks = 256;
    const Backing& backing = backing_[id];
    return backing.refusals < kRefusals || works_ - backing.refused_at > kWorks;
}

void Engine::forget_refusals() {
    for (Backing& backing : backing_) backing.refusals = 0;
}

// What a policy may ask back when it is asked for a victim.

Candidate Engine::candidate(ChunkId chunk) {
    const Chunk& one = residency_.chunk(chunk);
    // When work that is under way will end is not known.
    const bool idle = one.state != State::Filling && !residency_.in_flight(chunk);
    return {one.bytes, needs_no_copy(chunk), idle ? 0 : Candidate::kUnknown};
}

Links Engine::links() {
    Links links = speeds_;
    links.works_since_wait = works_since_wait();
    for (const ChunkId chunk : filling_) {
        if (!residency_.timelines.finished(backing_[chunk].fill))
            links.queued_in_bytes += residency_.chunk(chunk).bytes;
    }
    for (const PendingEviction& each : pending_evictions_) {
        if (each.copies && !is_complete(each)) links.queued_out_bytes += each.device.bytes;
    }
    return links;
}

void Engine::set_link_speeds(std::uint64_t in_bytes_per_s, std::uint64_t out_bytes_per_s) {
    speeds_.in_bytes_per_s = in_bytes_per_s;
    speeds_.out_bytes_per_s = out_bytes_per_s;
}

}  // namespace lms::engine

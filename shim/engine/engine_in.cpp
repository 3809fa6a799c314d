// Chunks in to device memory.
#include <algorithm>

#include "shim/engine/engine.h"

namespace lms::engine {

Fills Engine::begin_page_in(std::span<const PageIn> fills) {
    // Making blocks may have taken time.
    const bool allowed = !opaque_busy();
    Fills begun;
    for (const PageIn& fill : fills) {
        const ChunkId id = fill.need.chunk;
        const bool on_host = residency_.chunk(id).state == State::OnHost;
        const bool stays = on_host && distrusted_ && !backing_[id].host.pinned;
        begun.refused |= stays;
        if (!allowed || stays || gone(fill.need, residency_) || !residency_.begin_in(id)) {
            put(fill.block);
            continue;
        }
        const bool untouched = is_fresh(id) && (options_.knows_undefined || fill.need.overwritten);
        const bool undefined = !on_host || untouched;
        begun.each.push_back({id, fill.block, on_host ? backing_[id].host : Block{}, on_host, !undefined,
                              undefined && !fill.need.overwritten, fill.need.written, backing_[id].digest});
    }
    remapping_ += static_cast<std::uint32_t>(begun.each.size());
    begun.cleanly = may_be_clean();
    begun.soilings = soilings_;
    return begun;
}

void Engine::paged_in(const Fills& fills, std::span<const Filled> came) {
    remapping_ -= static_cast<std::uint32_t>(fills.each.size());
    for (std::size_t i = 0; i < fills.each.size(); ++i) {
        const Fill& fill = fills.each[i];
        if (!came[i].mapped) {
            residency_.undo_in(fill.chunk, fill.on_host);
            put(fill.block);
            continue;
        }
        Backing& backing = backing_[fill.chunk];
        backing.device = fill.block;
        backing.digest.reset();
        if (fill.on_host && !fill.copies) put(fill.host);
        if (!came[i].waits) {
            residency_.mapped_empty(fill.chunk);
            continue;
        }
        // Other work may have been about to write any chunk meanwhile.
        const bool clean = fill.copies && fills.cleanly && !fill.written && soilings_ == fills.soilings;
        residency_.begin_fill(fill.chunk);
        if (!fill.copies) backing.host = {};
        if (clean) retain_copy(fill.chunk);
        backing.fill = came[i].end;
        backing.fill_since_ns = came[i].since_ns;
        filling_.push_back(fill.chunk);
    }
}

std::vector<CameIn> Engine::complete_moves() {
    sweep_evictions();
    std::vector<CameIn> came;
    std::erase_if(filling_, [&](ChunkId id) {
        const Backing& backing = backing_[id];
        if (!residency_.timelines.finished(backing.fill)) return false;
        residency_.filled(id);
        if (backing.host.bytes == 0) return true;  // nothing was copied
        if (!residency_.chunk(id).clean) put(backing.host);
        came.push_back({id, backing.fill_since_ns});
        return true;
    });
    return came;
}

}  // namespace lms::engine

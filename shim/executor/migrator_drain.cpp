// Where each remap waits for all work (Core::remaps_wait), one wait is to serve many: until the program's
// work is over, chunks are only copied out, and then all are remapped before the first is copied in.
#include <algorithm>
#include <array>

#include "shim/executor/block_allocation.h"
#include "shim/executor/eviction.h"
#include "shim/executor/migrator.h"
#include "shim/executor/placement.h"
#include "shim/trace/live_page.h"

namespace lms::executor {

using engine::ChunkId;

namespace {

constexpr std::size_t kMostTogether = 64;  // chunks that come in before they are needed

}  // namespace

// What is foretold to go is copied meanwhile. The wait is for one copy or one piece of work at a time, so
// that it can be seen whether these get on.
Migrator::Step Migrator::await_drain(SessionLock& lock) {
    waits_for_ = trace::StallCause::InUse;
    start_foretold(core_, lock);
    std::vector<engine::Use> uses = core_.fences.oldest_of_program();
    if (core_.port.maps_host_memory() && stalled_.includes(uses)) return Step::Stalled;
    const auto& pending = core_.engine.pending_evictions();
    const auto copy = std::ranges::find_if(pending, [&](const engine::PendingEviction& each) LMS_LOCKED {
        return each.enqueued && !core_.engine.is_complete(each);
    });
    if (copy != pending.end()) uses = {copy->copied};
    wait_for_uses(uses, lock);
    poll_completions(core_, lock);
    return engine::any_unfinished(uses, core_.residency.timelines) ? Step::Waited : Step::Moved;
}

// Evicts for the next chunks that are foretold, beyond `bytes` that are needed now; the bytes of both.
std::uint64_t Migrator::start_for_upcoming(std::uint64_t bytes, SessionLock& lock) {
    std::array<ChunkId, 8> next{};
    const std::size_t count = core_.engine.upcoming(next);
    for (const ChunkId id : std::span(next).first(count)) {
        bytes += core_.residency.chunk(id).bytes;
        start_evictions(core_, {bytes, engine::Purpose::Ahead, id}, 0, lock);
    }
    return bytes;
}

// Adds what is foretold to be needed next, as far as there is room for it.
void Migrator::add_upcoming(std::vector<PageIn>& fills, SessionLock& lock) {
    const engine::Residency& residency = core_.residency;
    std::array<ChunkId, kMostTogether> next{};
    const std::size_t count = core_.engine.upcoming(next);
    std::uint64_t taken = 0;  // and not yet counted as on the device
    for (const PageIn& fill : fills) taken += fill.block.bytes;
    for (const ChunkId id : std::span(next).first(count)) {
        const engine::Chunk& chunk = residency.chunk(id);
        const bool among =
            std::ranges::any_of(fills, [&](const PageIn& fill) { return fill.need.chunk == id; });
        if (among || chunk.state != engine::State::OnHost || residency.allocation(chunk.allocation).dead ||
            !residency.may_come_in(id))
            continue;
        const ChunkRequest need{id, chunk.serial, false, false};
        const std::uint64_t limit = core_.engine.eviction_start();
        const auto block = device_block(core_, chunk.bytes, limit - std::min(limit, taken), lock);
        if (!block) return;
        fills.push_back({need, *block});
        taken += block->bytes;
        trace::add(trace::counters().fills_ahead);
    }
}

// Pages `fills` in, and with them what is needed next. What nothing is unmapped for need not wait.
Migrator::Step Migrator::page_in_together(std::vector<PageIn> fills, SessionLock& lock) {
    const auto unmapped = [&](const PageIn& fill) LMS_LOCKED {
        return !gone(fill.need, core_.residency) &&
               core_.residency.chunk(fill.need.chunk).state == engine::State::OnHost;
    };
    const bool unmaps = core_.port.maps_host_memory() && std::ranges::any_of(fills, unmapped);
    if (unmaps && must_drain(core_)) {
        for (const PageIn& fill : fills) core_.engine.put(fill.block);
        return await_drain(lock);
    }
    if (unmaps || fills.empty()) {
        complete_foretold(core_, lock);
        add_upcoming(fills, lock);
    }
    return fills.empty() ? Step::Waited : page_in_now(fills, lock);
}

}  // namespace lms::executor

#include "shim/executor/page_in.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "shim/executor/budget.h"
#include "shim/executor/guards.h"
#include "shim/executor/placement.h"
#include "shim/telemetry/telemetry.h"

namespace lms::executor {

namespace {

struct Job {
    const engine::Fill& fill;
    std::vector<Remap> remaps;
    bool enqueues;  // the copy, or what is put there instead
    bool done = false;
};

// False: the driver refused, and nothing is enqueued any more.
bool enqueue_contents(Core& core, const Job& job) {
    device::Port& port = core.port;
    const engine::Fill& fill = job.fill;
    const bool poisons = poisons_blocks(core.settings);
    // Programs that read what they never wrote find zeros in new memory of a GPU's; not what others left
    // here.
    if ((poisons || fill.clears) && port.set(fill.block.alias, poisons ? kPoison : std::uint8_t{0},
                                             fill.block.bytes, device::Direction::In) != CUDA_SUCCESS)
        return false;
    if (!fill.copies) return true;
    compare_digest(core.settings, address_of(job.remaps), fill.host, fill.digest);
    if (port.copy(fill.block.alias, fill.host.alias, fill.block.bytes, device::Direction::In) == CUDA_SUCCESS)
        return true;
    if (poisons) port.wait_for_stream(port.stream(device::Direction::In));
    return false;
}

// Enqueues the copy; the fence behind that, if there is one and the driver did not refuse it. Without the
// lock.
FencePtr enqueue(Core& core, Job& job) LMS_UNLOCKED {
    device::Port& port = core.port;
    if (!job.done || !job.enqueues) return nullptr;
    job.done = enqueue_contents(core, job);
    if (!job.done) {
        undo(port, job.remaps);
        return nullptr;
    }
    const CUstream in = port.stream(device::Direction::In);
    FencePtr fence = core.fences.record(in);
    if (!fence) port.wait_for_stream(in);
    return fence;
}

}  // namespace

Outcome page_in(Core& core, std::span<const engine::PageIn> pages, SessionLock& lock) {
    const engine::Fills fills = core.engine.begin_page_in(pages);
    if (fills.each.empty()) return fills.refused ? Outcome::Failed : Outcome::Cancelled;
    const bool poisons = poisons_blocks(core.settings);
    std::vector<Job> jobs;
    for (const engine::Fill& fill : fills.each)
        jobs.push_back({fill, remaps_of(core, fill.chunk, fill.host, fill.block),
                        fill.copies || fill.clears || poisons});
    const auto since = trace::now_ns();
    std::vector<engine::Filled> came;
    bool moved = false;
    // One fence each: while the last are copied, more can be made to go (Migrator::kFewFills). Each is
    // entered before the next is recorded, so that the last stands for all.
    const auto map = [&](Job& job) { job.done = remap(core.port, job.remaps) == CUDA_SUCCESS; };
    // Where remaps wait for all work, they would wait for each other's copies.
    const bool at_once = core.remaps_wait;
    if (at_once) unlocked(lock, [&] { std::ranges::for_each(jobs, map); });
    for (Job& job : jobs) {
        engine::Use end{};
        const auto enqueued = [&] {
            if (!at_once) map(job);
            return enqueue(core, job);
        };
        if (FencePtr fence = unlocked(lock, enqueued)) end = core.fences.add(std::move(fence));
        came.push_back({job.done, job.enqueues, end, since});
        moved |= job.done;
    }
    core.engine.paged_in(fills, came);
    note_levels(core);
    core.changed.notify_all();
    return moved ? Outcome::Moved : Outcome::Failed;
}

}  // namespace lms::executor

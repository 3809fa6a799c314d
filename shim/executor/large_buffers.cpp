#include "shim/executor/large_buffers.h"

#include <algorithm>

#include "shim/executor/budget.h"
#include "shim/executor/core.h"
#include "shim/trace/live_page.h"

namespace lms::executor {
namespace {

constexpr std::size_t kMostUnderWay = 64;

// Never 0.
std::uint64_t kind_of(const void* code, std::uint64_t wanted_bytes, std::uint64_t lacks) {
    std::uint64_t kind = 0;
    for (const std::uint64_t each :
         {std::uint64_t{reinterpret_cast<std::uintptr_t>(code)}, wanted_bytes, lacks})
        kind = (kind ^ each) * 0x9e3779b97f4a7c15u;
    return kind | 1;
}

bool is_missing(const engine::Residency& residency, const ChunkRequest& need) LMS_LOCKED {
    return need.wants_in() && !gone(need, residency) &&
           residency.chunk(need.chunk).state == engine::State::OnHost;
}

}  // namespace

bool is_large(const Core& core, std::uint64_t bytes) {
    return bytes > budget_in_turn(core) / 4 && core.port.maps_host_memory() && !core.in_place_lost;
}

TimedWork choose_place(Core& core, const void* code, std::span<ChunkRequest> needs) {
    // Most work: nothing more is looked at.
    const auto of_large = [](const ChunkRequest& need) { return need.aside || need.part > 0; };
    if (std::ranges::none_of(needs, of_large)) return {};
    LargeBuffers& large = core.large;
    std::uint64_t wanted = 0;
    std::uint64_t lacks = 0;  // parts, a bit each: what is read often may be one of them
    std::uint64_t named = 0;
    for (const ChunkRequest& need : needs) {
        if (gone(need, core.residency)) continue;
        const std::uint64_t bytes = core.residency.chunk(need.chunk).bytes;
        named += bytes;
        if (!need.wants_in()) continue;
        wanted += bytes;
        if (need.part > 0 && is_missing(core.residency, need)) lacks |= std::uint64_t{1} << (need.part % 64);
    }
    if (named <= budget_in_turn(core)) {
        for (ChunkRequest& need : needs) need.aside = false;
        return {};
    }
    if (lacks == 0 || !code) return {};
    // What goes for its sake crosses the link, too.
    const double move_ns_per_byte = large.ns_per_byte[0] + large.ns_per_byte[1];
    TimedWork work{kind_of(code, wanted, lacks)};
    const auto choice = large.costs.choose(work.kind, move_ns_per_byte);
    if (choice.in_place) {
        trace::add(trace::counters().in_place_launches);
        for (ChunkRequest& need : needs) {
            if (need.part > 0 && is_missing(core.residency, need)) {
                need.aside = true;
                work.in_place_bytes += core.residency.chunk(need.chunk).bytes;
            }
        }
    }
    return choice.timed ? work : TimedWork{};
}

void note_in_place(const engine::Residency& residency, std::span<const ChunkRequest> needs, TimedWork& work) {
    for (const ChunkRequest& need : needs) {
        if (is_missing(residency, need)) work.in_place_bytes += residency.chunk(need.chunk).bytes;
    }
}

void LargeBuffers::submitted(std::uint64_t piece, const TimedWork& work) {
    if (under_way.size() == kMostUnderWay) under_way.pop_front();  // of those the time is never told
    under_way.emplace_back(piece, work);
}

void LargeBuffers::take_times(device::Port& port) {
    std::erase_if(under_way, [&](const auto& each) {
        const auto time = port.time_of_work(each.first);
        if (!time) return false;
        costs.ran(each.second.kind, each.second.in_place_bytes, time->end_ns - time->begin_ns);
        return true;
    });
}

void note_move(Core& core, trace::Direction direction, engine::ChunkId chunk, trace::MoveReason reason,
               std::uint64_t begin_ns, std::uint64_t end_ns, bool copied) {
    const auto time =
        core.telemetry.note_move(direction, chunk, reason, begin_ns, end_ns, copied, core.large.timed);
    if (!time || !(core.telemetry.traced || core.large.timed)) return;
    const std::uint64_t bytes = core.residency.chunk(chunk).bytes;
    core.large.ns_per_byte[static_cast<std::size_t>(direction)] =
        static_cast<double>(time->end_ns - time->begin_ns) / static_cast<double>(bytes);
}

}  // namespace lms::executor

#include "tools/lms/findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "shim/util/units.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/pages.h"
#include "tools/lms/trace_names.h"

namespace lms::tool {
namespace {

using trace::StallCause;
using util::format_bytes;

double percent(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// What another order of the same work would save.
void policy(const Trace& trace, std::vector<Finding>& found) {
    const ReplayWith with = replay_like(trace);
    const std::string& own = with.policy;
    const std::vector<std::string> policies = {own, "next-use", "lru"};
    const std::vector<Replayed> replayed = replay_all(trace, policies, with, {});
    const auto fewest = std::ranges::min_element(replayed, {}, &Replayed::bytes);
    const std::string& best = policies[static_cast<std::size_t>(fewest - replayed.begin())];
    const std::uint64_t now = replayed.front().bytes(), least = fewest->bytes();
    if (static_cast<double>(least) >= 0.9 * static_cast<double>(now)) return;
    found.push_back(
        {fmt::format("Replayed, {} moves {:.0f} % less than {}.", best, 100 - percent(least, now), own),
         fmt::format("Try LMS_POLICY={}.", best)});
}

void costly_buffers(const Analysis& all, std::vector<Finding>& found) {
    if (all.places.empty()) return;
    const BufferGroup& most = all.places.front();
    found.push_back({fmt::format("{} buffer{} of {} from {} made {:.0f} % of all moves.", most.buffers,
                                 most.buffers == 1 ? "" : "s", format_bytes(most.bytes),
                                 most.call_site.empty() ? kUnknownPlace : most.call_site,
                                 percent(most.moved(), all.moved())),
                     "Begin there: fewer or smaller buffers, or that much more GPU memory, help most."});
}

void memory(const Analysis& all, std::vector<Finding>& found) {
    for (const auto& [device, gpu] : all.gpus) {
        if (gpu.most_beyond_bytes == 0) continue;
        found.push_back(
            {fmt::format("GPU {}: up to {} were allocated at once, and {} may be filled.", device,
                         format_bytes(gpu.peak_allocated_bytes),
                         filled(gpu.budget_bytes, gpu.peak_allocated_bytes, gpu.most_beyond_bytes)),
             fmt::format(
                 "With {} less (a smaller batch, for example), or as much more memory, nothing moves.",
                 format_bytes(gpu.most_beyond_bytes))});
    }
}

// A cause with a quarter of all waiting, or more, and what is done about it.
constexpr std::pair<StallCause, const char*> kRemedies[] = {
    {StallCause::Turn,
     "Threads of the program move memory one at a time: fewer that launch at once wait less."},
    {StallCause::CopyOut,
     "Evicted memory is copied first, except what kernels take as const. A faster link or an emptier GPU "
     "helps."},
    {StallCause::InUse,
     "Running kernels and the next one do not fit together: split the work into kernels that use less each."},
    {StallCause::Opaque,
     "If `lms run --check` finds nothing, LMS_SAFETY=args lets moves go on beside such work."},
    {StallCause::Mapping, "Many small moves: allocate in fewer, larger buffers, or raise LMS_THRESHOLD."},
};

void waiting(const Analysis& all, const Cost& cost, std::vector<Finding>& found) {
    // A thread that waits while the GPU has work costs nothing.
    if (cost.seconds < 0.01 * all.seconds()) return;
    for (const auto& [cause, action] : kRemedies) {
        const double share = percent(all.stall_ns_by_cause[static_cast<std::size_t>(cause)], all.stall_ns);
        if (share < 25) continue;
        found.push_back({fmt::format("About {:.2f} s of the cost, {:.0f} %, is waiting for: {}.",
                                     share / 100 * cost.seconds, share, name_of(cause)),
                         action});
    }
}

void in_place(const Analysis& all, std::vector<Finding>& found) {
    if (all.in_place_launches == 0) return;
    found.push_back(
        {fmt::format("{} of {} launches used buffers in host memory, over the link.", all.in_place_launches,
                     all.launches),
         "Their buffers did not fit beside what was in use: split that work, or free what is not needed."});
}

}  // namespace

Cost cost_of(const Trace& trace, const Analysis& all) {
    const double waited = static_cast<double>(all.stall_ns) / 1e9;
    if (all.moved() == 0) return {{}, waited};
    const ReplayWith with = replay_like(trace);
    const Replayed run = replay_all(trace, {with.policy}, with, {}).front();
    if (run.fitting_seconds <= 0) return {{}, waited};
    const double slowdown = std::max(1.0, run.seconds / run.fitting_seconds);
    return {slowdown, all.seconds() * (1 - 1 / slowdown)};
}

std::vector<Finding> findings_of(const Trace& trace, const Analysis& all, const Cost& cost) {
    std::vector<Finding> found;
    if (all.moved() == 0 && all.in_place_launches == 0) return found;
    if (all.moved() > 0) {
        policy(trace, found);
        costly_buffers(all, found);
    }
    memory(all, found);
    waiting(all, cost, found);
    in_place(all, found);
    return found;
}

}  // namespace lms::tool

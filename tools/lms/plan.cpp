#include "tools/lms/plan.h"

#include <algorithm>

#include "tools/lms/open_trace.h"
#include "tools/lms/replay.h"

namespace lms::tool {
namespace {

using Step = ReplayScript::Step;

// What CUDA takes of a GPU for a context.
std::uint64_t context_of(std::uint64_t memory_bytes) {
    return std::min<std::uint64_t>(448ull << 20, memory_bytes / 32);
}

std::uint64_t budget_on(const Workload& load, const TargetGpu& gpu, const PlanWith& with) {
    const std::uint64_t context =
        with.context_bytes.value_or(load.has_context ? 0 : context_of(gpu.memory_bytes));
    const std::uint64_t taken = default_reserve(gpu.memory_bytes) + context + load.unmanaged_bytes;
    return gpu.memory_bytes - std::min(gpu.memory_bytes, taken);
}

// Of the program's own copies; less than 0: it is none whose size is known.
double copy_ns(const trace::Launch& launch, const TargetGpu& gpu) {
    const auto bytes = static_cast<double>(launch.copied.bytes);
    if (launch.copied.way == trace::CopyWay::ToGpu) return 1e9 * bytes / gpu.in_bytes_per_s;
    if (launch.copied.way == trace::CopyWay::ToHost) return 1e9 * bytes / gpu.out_bytes_per_s;
    if (launch.copied.way == trace::CopyWay::OnGpu && gpu.speed) return 2e9 * bytes / gpu.speed->bytes_per_s;
    return -1;
}

std::vector<const trace::Launch*> launches_of(const Workload& load) {
    std::vector<const trace::Launch*> launches;
    for (const trace::Event& event : load.trace->events) {
        const auto* const launch = std::get_if<trace::Launch>(&event);
        if (launch && launch->device == load.device) launches.push_back(launch);
    }
    return launches;
}

// As that GPU would run it; and by launch, the step of the script that it is.
std::vector<std::size_t> put_times(const Workload& load, const TargetGpu& gpu, ReplayScript& script) {
    const std::vector<const trace::Launch*> launches = launches_of(load);
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < script.steps.size(); ++i) {
        Step& step = script.steps[i];
        if (step.kind != Step::Kind::Work) continue;
        const std::size_t launch = at.size();
        at.push_back(i);
        const trace::Launch& of = *launches[launch];
        const double ns = of.kernel.empty() ? copy_ns(of, gpu) : load.times->kernel_ns(launch, gpu);
        if (ns >= 0) step.ran_ns = static_cast<std::uint64_t>(ns);
        if (load.pace.empty()) continue;
        if (ns < 0) step.ran_ns = 0;
        const HostPace& pace = load.pace[launch];
        step.took_ns = pace.took_ns;
        step.waits = pace.waits;
        step.after_ns = pace.after_ns;
        step.over = pace.over;
    }
    return at;
}

}  // namespace

Planned plan_on(const Workload& load, const TargetGpu& given, const PlanWith& with) {
    Planned planned;
    TargetGpu gpu = given;
    if (!gpu.speed) gpu.speed = with.speed;
    planned.gpu = gpu;
    const std::uint64_t budget = budget_on(load, gpu, with);
    if (budget == 0) return planned;
    ReplayScript script = script_of(*load.trace, load.device, budget);
    const std::vector<std::size_t> steps = put_times(load, gpu, script);
    if (steps.empty()) return planned;
    ReplayWith how = replay_like(*load.trace);
    how.in_bytes_per_s = gpu.in_bytes_per_s;
    how.out_bytes_per_s = gpu.out_bytes_per_s;
    how.remap_seconds = load.remap_seconds;
    how.launch_seconds = load.launch_seconds;
    // What comes before has shown what the program repeats.
    const std::size_t ends = load.step_ends.size();
    const std::size_t measured = ends < 2 ? 0 : ends / 3 + (ends < 3);
    const std::size_t from = measured > 0 ? load.step_ends[ends - 1 - measured] : steps.size() / 2;
    how.marks = {steps[std::min(from, steps.size() - 1)],
                 measured > 0 ? steps[std::min(load.step_ends.back(), steps.size() - 1)] : steps.back()};
    const Replayed replayed = replay(script, how);
    const Reached &begin = replayed.reached[0], &end = replayed.reached[1];
    const std::size_t times = std::max<std::size_t>(1, measured);
    planned.has_room = true;
    planned.seconds = (end.seconds - begin.seconds) / static_cast<double>(times);
    planned.fitting_seconds = (end.fitting_seconds - begin.fitting_seconds) / static_cast<double>(times);
    planned.bytes_in = (end.bytes_in - begin.bytes_in) / times;
    planned.bytes_out = (end.bytes_out - begin.bytes_out) / times;
    planned.fits = replayed.bytes() == 0 && replayed.in_place == 0;
    planned.host_bytes = replayed.peak_host_bytes;
    planned.buffer_bytes = replayed.peak_bytes;
    planned.in_place = replayed.in_place;
    return planned;
}

const Planned* smallest(std::span<const Planned> rows) {
    const Planned* best = nullptr;
    for (const Planned& row : rows) {
        if (!row.has_room || row.slowdown() >= kMostSlowdown) continue;
        if (!best || row.gpu.memory_bytes < best->gpu.memory_bytes) best = &row;
    }
    return best;
}

}  // namespace lms::tool

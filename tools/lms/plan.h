// lms plan: how a workload would run on GPUs that are not here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/lms/gpus.h"
#include "tools/lms/workload.h"

namespace lms::tool {

// A workload on a GPU, once its first steps are over: a step of it, or where it does not repeat itself the
// second half.
struct Planned {
    TargetGpu gpu;
    bool has_room = false;  // for anything, beside the context and what is not managed
    bool fits = false;      // nothing has to move
    double seconds = 0;
    double fitting_seconds = 0;  // on the same GPU with enough memory
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::uint64_t host_bytes = 0;    // at most, from the beginning on
    std::uint64_t buffer_bytes = 0;  // that are there at once, at most
    std::uint64_t in_place = 0;      // works that found no room for all they touch

    double slowdown() const { return fitting_seconds > 0 ? seconds / fitting_seconds : 1; }
};

struct PlanWith {
    std::optional<std::uint64_t> context_bytes;  // else as CUDA's is on such a GPU, or in the load
    std::optional<KernelSpeed> speed;            // of kernels on a GPU that the table does not have
};

Planned plan_on(const Workload& load, const TargetGpu& gpu, const PlanWith& with);

// More than this makes a GPU too slow for a run.
inline constexpr double kMostSlowdown = 1.1;
// The one with least memory on which the loss is below 10 %; null: there is none.
const Planned* smallest(std::span<const Planned> rows);

}  // namespace lms::tool

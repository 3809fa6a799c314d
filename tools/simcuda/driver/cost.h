// What work takes in simulated time.
#pragma once

#include <cstdint>

#include "tools/simcuda/driver/shared/page.h"
#include "tools/simcuda/driver/timeline.h"
#include "tools/simcuda/driver/work.h"
#include "tools/simcuda/exec/tally.h"

namespace simcuda::driver {

// What works of a device share.
struct GpuResources {
    explicit GpuResources(unsigned device);

    Resource link_up, link_down, memory, multiprocessors;
    shared::SharedDevice* const shared;  // with whom; null: nobody
};

// Note in `timing` what they take. Kernels: once they have run.
void cost_of_transfer(Timing& timing, const Op& op, GpuResources& resources);
void cost_of_kernel(Timing& timing, const exec::sc_tally& tally, std::uint64_t threads,
                    GpuResources& resources);

}  // namespace simcuda::driver

#include "tools/simcuda/driver/gpu_model.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace simcuda::driver {
namespace {

constexpr GpuModel kGpus[] = {
#define GPU(name, multiprocessors, tera_flops, memory_gbps, link_gbps) \
    {#name, multiprocessors, tera_flops, memory_gbps, link_gbps},
#include "tools/simcuda/driver/gpus.def"
#undef GPU
};

}  // namespace

const GpuModel* find_gpu(const char* name) {
    const auto* const it = std::find_if(std::begin(kGpus), std::end(kGpus), [&](const GpuModel& gpu) {
        return std::strcmp(gpu.name, name) == 0;
    });
    return it == std::end(kGpus) ? nullptr : it;
}

}  // namespace simcuda::driver

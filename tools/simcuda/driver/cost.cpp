#include "tools/simcuda/driver/cost.h"

#include <algorithm>
#include <iterator>

#include "tools/simcuda/driver/gpu_model.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/shared/order.h"

namespace simcuda::driver {
namespace {

// Threads of a multiprocessor with which it is at its best: half of what it holds.
constexpr double kBusyThreads = 1024;

std::uint64_t ns_at(double amount, double per_ns) {
    return per_ns == 0 ? 0 : static_cast<std::uint64_t>(amount / per_ns);
}

void take(Timing& timing, Resource& resource, std::uint64_t ns) {
    if (ns != 0) timing.takes.emplace_back(&resource, ns);
}

}  // namespace

GpuResources::GpuResources(unsigned device)
    : shared(shared::in_order() ? &shared::page()->devices[device] : nullptr) {
    Resource* const parts[] = {&link_up, &link_down, &memory, &multiprocessors};
    for (std::size_t i = 0; shared != nullptr && i < std::size(parts); ++i)
        parts[i]->share(shared->part_until[i]);
}

void cost_of_transfer(Timing& timing, const Op& op, GpuResources& resources) {
    const GpuModel* gpu = modelled_gpu();
    const double memory = gpu != nullptr ? gpu->memory_gbps : 0;
    if (const auto* copy = std::get_if<CopyOp>(&op)) {
        const auto bytes = static_cast<double>(copy->width * copy->height * copy->depth);
        if (copy->from.place != Place::Device) {
            take(timing, resources.link_up, ns_at(bytes, knobs().h2d_gbps));
        } else if (copy->to.place != Place::Device) {
            take(timing, resources.link_down, ns_at(bytes, knobs().d2h_gbps));
        } else {
            take(timing, resources.memory, ns_at(2 * bytes, memory));  // read and written
        }
    } else if (const auto* set = std::get_if<MemsetOp>(&op)) {
        take(timing, resources.memory,
             ns_at(static_cast<double>(set->width * set->height * set->element_bytes), memory));
    }
}

void cost_of_kernel(Timing& timing, const exec::sc_tally& tally, std::uint64_t threads,
                    GpuResources& resources) {
    timing.least_ns = 1000 * knobs().kernel_us;
    timing.kernel_of = resources.shared;
    take(timing, resources.link_up, ns_at(static_cast<double>(tally.host_read), knobs().h2d_gbps));
    take(timing, resources.link_down, ns_at(static_cast<double>(tally.host_written), knobs().d2h_gbps));
    const GpuModel* gpu = modelled_gpu();
    if (gpu == nullptr) return;
    take(timing, resources.memory, ns_at(static_cast<double>(tally.bytes), gpu->memory_gbps));
    // An instruction of one thread each; the published figure counts a multiply-add as two.
    const double busy = static_cast<double>(tally.operations) / (gpu->tera_flops * 1000 / 2);
    take(timing, resources.multiprocessors, static_cast<std::uint64_t>(busy));
    // Few threads leave most of the GPU to others, and take as long as if they had all of it.
    const double share = std::min(1.0, static_cast<double>(threads) / (gpu->multiprocessors * kBusyThreads));
    timing.least_ns = std::max(timing.least_ns, static_cast<std::uint64_t>(busy / share));
}

}  // namespace simcuda::driver

// Messages for the user.

#include <atomic>
#include <string_view>

#include "shim/program/framework_setup.h"
#include "shim/telemetry/telemetry.h"
#include "shim/util/bounds.h"
#include "shim/util/host_memory.h"
#include "shim/util/log.h"
#include "shim/util/mappings.h"
#include "shim/util/units.h"

namespace lms::telemetry {

using util::format_bytes;

void Telemetry::announce_pressure() const {
    if (static std::atomic<bool> said; engine_.budget_bytes() < port_.granularity() || !log::once(said))
        return;
    // A policy may leave memory free (LMS_FRAC).
    const bool full = engine_.residency().eviction_start(engine_.budget_bytes()) >= engine_.budget_bytes();
    const std::string_view frameworks = program::frameworks_set_up();
    log::warn("GPU {} is {}: {} allocated, {} fit; cold buffers move to host memory (`lms top`){}{}", device_,
              full ? "full" : "full by LMS_FRAC or the policy",
              format_bytes(engine_.residency().allocated_bytes()), format_bytes(engine_.budget_bytes()),
              frameworks.empty() ? "" : "; LMS_FRAMEWORKS=", frameworks);
    if (port_.maps_host_memory()) return;
    log::warn(
        "GPU {} does not map host memory: a kernel that reaches an evicted buffer by a hidden pointer "
        "fails{}",
        device_, settings_.check ? "" : "; LMS_CHECK=1 names it");
}

void announce_in_place(std::uint64_t missing_bytes, std::uint64_t bytes, bool late) {
    if (static std::atomic<bool> said; !log::once(said)) return;
    log::warn(
        "a launch finds no room on the GPU for {} of the {} it names{}: its kernel uses them in host "
        "memory, slowly; split it",
        format_bytes(missing_bytes), format_bytes(bytes), late ? ", beside unfinished work" : "");
}

void Telemetry::announce_wait() const {
    if (static std::atomic<bool> said; port_.maps_host_memory() || !log::once(said)) return;
    log::warn(
        "a launch waits until unfinished work releases GPU memory; let no host callback wait for the "
        "launching thread, or both hang");
}

void Telemetry::announce_too_large(std::uint64_t bytes) const {
    if (static std::atomic<bool> said; !log::once(said)) return;
    log::error(
        "out of memory: a launch names {}; this GPU has room for {} and cannot use host memory in place: "
        "split the launch",
        format_bytes(bytes), format_bytes(engine_.budget_bytes()));
}

void announce_too_small(std::uint64_t bytes, std::uint64_t threshold_bytes) {
    if (static std::atomic<bool> said; !log::once(said)) return;
    log::warn(
        "out of memory: no room for {}, which do not move, for LMS_THRESHOLD is {}: with a lower one they do",
        format_bytes(bytes), format_bytes(threshold_bytes));
}

void announce_pins_given_up(std::uint64_t bytes) {
    if (static std::atomic<bool> said; !log::once(said)) return;
    log::warn("lms_pin: the {} that the program pinned may move again, for a launch does not fit beside them",
              format_bytes(bytes));
}

void Telemetry::announce_no_capacity(std::uint64_t bytes) const {
    if (static std::atomic<bool> said; !log::once(said)) return;
    const std::uint64_t host = engine_.host_bytes(util::host_memory().spare_bytes(bounds::kHostLook));
    log::error("out of memory: no room for {} beside {}; the GPU holds {} and host memory {}: {}",
               format_bytes(bytes), format_bytes(engine_.residency().allocated_bytes()),
               format_bytes(engine_.budget_bytes()), format_bytes(host),
               host < engine_.host_limit_bytes() ? "free some, for machine or cgroup can spare no more"
                                                 : "raise LMS_HOST_LIMIT");
}

void Telemetry::announce_no_host_memory(std::uint64_t bytes) const {
    if (static std::atomic<bool> said; announce_no_mappings() || !log::once(said)) return;
    log::error(
        "out of memory: {} find no room on the GPU, and beyond {} the driver pins no host memory, though "
        "LMS_HOST_LIMIT allows {}",
        format_bytes(bytes), format_bytes(held_host_bytes()), format_bytes(engine_.host_limit_bytes()));
}

bool announce_no_mappings() {
    static std::atomic<bool> said;
    const util::Mappings mappings = util::mappings();
    if (!mappings.at_end()) return false;
    if (log::once(said)) {
        log::error(
            "out of memory: this process has {} of the {} mappings that the kernel allows it; `sysctl "
            "vm.max_map_count={}` allows more",
            mappings.there, mappings.allowed, 4 * mappings.allowed);
    }
    return true;
}

void Telemetry::announce_failure(CUresult error) const {
    if (static std::atomic<bool> said; !device::is_sticky(error) || !log::once(said)) return;
    std::uint64_t in = 0, out = 0;
    for (const engine::ChunkId id : engine_.filling()) in += engine_.residency().chunk(id).bytes;
    for (const engine::PendingEviction& each : engine_.pending_evictions()) out += each.device.bytes;
    log::error(
        "GPU {}: its context has failed (error {}), and all calls say so; {} were coming in and {} going "
        "out: try LMS_CHECK=1",
        device_, static_cast<int>(error), format_bytes(in), format_bytes(out));
}

void Telemetry::announce_no_budget(std::uint64_t total_bytes) const {
    if (engine_.budget_bytes() >= port_.granularity()) return;
    if (static std::atomic<bool> said; !log::once(said)) return;
    log::warn(
        "GPU {}: LMS_RESERVE, LMS_LIMIT and other programs leave nothing of its {}: buffers stay in host "
        "memory, slowly",
        device_, format_bytes(total_bytes));
}

void announce_no_addresses(CUdevice device, std::uint64_t total_bytes, std::uint64_t host_bytes) {
    if (static std::atomic<bool> said; !log::once(said)) return;
    log::warn(
        "GPU {} keeps its size: the driver has no addresses for its {} and {} of host memory; raise `ulimit "
        "-v` or lower LMS_HOST_LIMIT",
        device, format_bytes(total_bytes), format_bytes(host_bytes));
}

void Telemetry::announce_distrust(const device::Trial& trial) const {
    const std::uint64_t on_host = held_host_bytes() - engine_.pool(engine::Place::Host).free_bytes();
    if (trial.trust == device::Trust::Nothing) {
        log::warn(
            "GPU {} keeps its size: a trial of moves lost contents ({}), with {} in host memory; report it",
            device_, trial.failed, format_bytes(on_host));
    } else {
        log::warn(
            "GPU {}: evicted memory is {}, for a trial of host memory failed ({}): what a launch names "
            "must fit",
            device_, on_host == 0 ? "unmapped" : "no longer used in place", trial.failed);
    }
}

void Telemetry::announce_remaps_wait() const {
    if (static std::atomic<bool> said; settings_.safety == Safety::Strict || !log::once(said)) return;
    log::warn(
        "GPU {}: this driver changes a mapping only when all work is done, so moves are slow; for kernels "
        "that wait for the host, set LMS_SAFETY=strict",
        device_);
}

void announce_host_limit(const Settings& settings, std::uint64_t in_force_bytes) {
    if (static std::atomic<bool> said;
        settings.host_limit_bytes.value_or(0) <= in_force_bytes || !log::once(said))
        return;
    log::warn("LMS_HOST_LIMIT={} is more than this machine has; the limit is {}",
              format_bytes(*settings.host_limit_bytes), format_bytes(in_force_bytes));
}

}  // namespace lms::telemetry

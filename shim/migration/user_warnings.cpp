#include "shim/migration/user_warnings.h"

#include <atomic>

#include "shim/migration/budget.h"
#include "shim/util/log.h"
#include "shim/util/mappings.h"
#include "shim/util/units.h"

namespace lms::engine {

using util::format_bytes;

void announce_eviction(State& state) {
    static std::atomic<bool> said;
    if (!log::once(said)) return;
    // A policy may have memory left free (LMS_FRAC).
    const bool full =
        state.residency.eviction_start(state.engine.budget_bytes()) >= state.engine.budget_bytes();
    log::warn(
        "GPU {}: {}: cold buffers move to host memory from here on ({} of {} stay resident; `lms top` or "
        "LMS_STATS=FILE tells what it costs){}",
        state.device, full ? "its memory is full" : "as full as LMS_FRAC or the policy lets it be",
        format_bytes(state.residency.device_bytes()), format_bytes(state.residency.allocated_bytes()),
        state.port.maps_host_memory()
            ? ""
            : "; kernels cannot reach them there, for this GPU does not map host memory");
}

void announce_in_place(std::uint64_t missing_bytes, std::uint64_t bytes, bool late) {
    static std::atomic<bool> said;
    if (!log::once(said)) return;
    log::warn(
        "a launch finds no room on the GPU for {} of the {} it names{}: it works on them in host memory, "
        "slowly",
        format_bytes(missing_bytes), format_bytes(bytes), late ? ", after waiting for unfinished work" : "");
}

void announce_wait(const State& state) {
    static std::atomic<bool> said;
    if (state.port.maps_host_memory() || !log::once(said)) return;
    log::warn(
        "a launch waits for GPU memory that unfinished work holds, and for as long as that takes, for this "
        "GPU "
        "does not map host memory; if that work waits for a host callback which needs a lock of the "
        "launching "
        "thread's, neither ends");
}

void announce_too_large(const State& state, std::uint64_t bytes) {
    static std::atomic<bool> said;
    if (!log::once(said)) return;
    log::error(
        "out of memory: a launch names {}; this GPU has room for {} and cannot use host memory in place",
        format_bytes(bytes), format_bytes(state.engine.budget_bytes()));
}

void announce_pins_given_up(std::uint64_t bytes) {
    static std::atomic<bool> said;
    if (!log::once(said)) return;
    log::warn("what the program has pinned (lms_pin), {}, may move again: a launch does not fit beside it",
              format_bytes(bytes));
}

void announce_no_capacity(const State& state, std::uint64_t bytes) {
    static std::atomic<bool> said;
    if (!log::once(said)) return;
    const std::uint64_t host = host_bytes(state, kHostLook);
    log::error(
        "out of memory: no room for {} beside {}; the GPU has {}, and the shim may pin {} of host memory "
        "({})",
        format_bytes(bytes), format_bytes(state.residency.allocated_bytes()),
        format_bytes(state.engine.budget_bytes()), format_bytes(host),
        host < state.engine.host_limit_bytes() ? "what this machine or its cgroup has left, less a sixteenth"
                                               : "LMS_HOST_LIMIT");
}

void announce_no_host_memory(const State& state, std::uint64_t bytes) {
    static std::atomic<bool> said;
    if (announce_no_mappings() || !log::once(said)) return;
    log::error(
        "out of memory: {} find no room on the GPU, and beyond {} the driver pins no host memory "
        "(LMS_HOST_LIMIT allows {})",
        format_bytes(bytes), format_bytes(state.host_blocks.held_bytes()),
        format_bytes(state.engine.host_limit_bytes()));
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

void announce_failure(const State& state, CUresult error) {
    static std::atomic<bool> said;
    if (!device::is_sticky(error) || !log::once(said)) return;
    std::uint64_t in = 0, out = 0;
    for (const core::ChunkId id : state.engine.filling()) in += state.residency.chunk(id).bytes;
    for (const core::PendingEviction& each : state.engine.pending_evictions()) out += each.device.bytes;
    log::error(
        "GPU {}: its context has failed (error {}), and all calls say so; {} were being copied in then and "
        "{} "
        "out, of {} allocated",
        state.device, static_cast<int>(error), format_bytes(in), format_bytes(out),
        format_bytes(state.residency.allocated_bytes()));
}

void announce_no_budget(const State& state, std::uint64_t total_bytes) {
    if (state.engine.budget_bytes() >= state.granularity) return;
    static std::atomic<bool> said;
    if (!log::once(said)) return;
    log::warn(
        "GPU {}: LMS_RESERVE, LMS_LIMIT and what others hold leave nothing of its {}: buffers stay in host "
        "memory, slowly",
        state.device, format_bytes(total_bytes));
}

void announce_no_addresses(CUdevice device, std::uint64_t total_bytes, std::uint64_t host_bytes) {
    static std::atomic<bool> said;
    if (!log::once(said)) return;
    log::warn(
        "GPU {}: the driver has not twice as many addresses as its {} and {} of host memory take; more may "
        "be "
        "had with a larger `ulimit -v`, fewer are needed with a smaller LMS_HOST_LIMIT",
        device, format_bytes(total_bytes), format_bytes(host_bytes));
}

void announce_distrust(const State& state, const device::Trial& trial) {
    const std::uint64_t there = state.host_blocks.held_bytes() - state.host_blocks.free_bytes();
    if (trial.trust == device::Trust::Nothing) {
        log::warn("GPU {} stays as large as it is: a trial on memory of the shim's own lost contents ({}){}",
                  state.device, trial.failed,
                  there == 0
                      ? ""
                      : "; it could not be made before " + format_bytes(there) + " were in host memory");
    } else {
        log::warn("GPU {}: evicted memory is {}, for a trial of memory on the host failed ({})", state.device,
                  there == 0 ? "unmapped" : "no longer used in place", trial.failed);
    }
}

void announce_remaps_wait(const State& state) {
    static std::atomic<bool> said;
    if (state.settings.safety == Safety::Strict || !log::once(said)) return;
    log::warn(
        "GPU {}: this driver changes a mapping only when all work is done, so that moves and kernels do not "
        "overlap, as with LMS_SAFETY=strict; a launch that needs room while a kernel waits for the thread "
        "that launches does not return, but with LMS_SAFETY=strict it does, after a second{}",
        state.device, state.port.maps_host_memory() ? "" : ", where host memory can be mapped");
}

void announce_host_limit(const Settings& settings, std::uint64_t in_force_bytes) {
    static std::atomic<bool> said;
    if (settings.host_limit_bytes.value_or(0) <= in_force_bytes || !log::once(said)) return;
    log::warn("LMS_HOST_LIMIT={}: this machine has {}, which is the limit",
              format_bytes(*settings.host_limit_bytes), format_bytes(in_force_bytes));
}

}  // namespace lms::engine

#include "shim/session/session.h"

#include <algorithm>

#include "shim/engine/chunking.h"
#include "shim/executor/budget.h"
#include "shim/executor/guards.h"
#include "shim/executor/self_check.h"
#include "shim/program/fast_path.h"
#include "shim/telemetry/telemetry.h"
#include "shim/util/log.h"
#include "shim/util/units.h"

namespace lms::session {

namespace {

// Addresses for `memory_bytes`, and an alias for every block. They cost next to nothing, so first with room
// for guard gaps and fragmentation; under `ulimit -v`, or beside much else, less has to do.
executor::Span reserve(device::Port& port, std::uint64_t memory_bytes, CUresult& error) {
    executor::Span span{};
    for (const auto& [app, alias] : {std::pair{4, 2}, {2, 1}, {1, 1}}) {
        span.app_bytes = static_cast<std::uint64_t>(app) * memory_bytes;
        span.alias_bytes = static_cast<std::uint64_t>(alias) * memory_bytes;
        error = port.reserve(span.app_bytes + span.alias_bytes, span.begin);
        if (error == CUDA_SUCCESS) break;
    }
    return span;
}

}  // namespace

Session::Session(Gpu gpu, std::unique_ptr<device::Port> port, std::unique_ptr<engine::Ranking> ranking)
    : context_(gpu.context), port_(std::move(port)), ranking_(std::move(ranking)) {}

Session::~Session() {
    idle_helper_.reset();
    if (core_) {
        const executor::SessionLock lock(core_->mutex);
        if (core_->host_claims) core_->host_claims->settle(core_->host_part, {});
    }
    if (core_ && core_->telemetry.traced) program::fast_path_gate.reopen();
    if (core_ && core_->under_pressure.load()) program::fast_path_gate.reopen();
}

std::unique_ptr<Session> Session::open(Gpu gpu, std::unique_ptr<device::Port> port,
                                       std::unique_ptr<engine::Ranking> ranking, const Settings& settings,
                                       CUresult& error) {
    device::MemoryInfo info{};
    error = port->memory_info(info);
    if (error != CUDA_SUCCESS) {
        port->work_through(nullptr);
        return nullptr;
    }
    const std::uint64_t unit = port->granularity() * 64;
    const std::uint64_t host = util::host_limit_bytes(settings.host_limit_bytes);
    const executor::Span span = reserve(*port, (info.total_bytes + host) / unit * unit + unit, error);
    if (error != CUDA_SUCCESS) {
        port->work_through(nullptr);
        telemetry::announce_no_addresses(gpu.device, info.total_bytes, host);
        return nullptr;
    }
    telemetry::announce_host_limit(settings, host);

    std::unique_ptr<Session> session(new Session(gpu, std::move(port), std::move(ranking)));
    session->core_ =
        std::make_unique<executor::Core>(gpu.device, *session->port_, settings, span, *session->ranking_);
    session->migrator_ = std::make_unique<executor::Migrator>(*session->core_);
    executor::tell_verdict_at_exit(settings);
    session->follow_trace();
    executor::SessionLock lock(session->core_->mutex);
    error = executor::refresh_budget(*session->core_, lock);
    if (error != CUDA_SUCCESS) {
        unlocked(lock, [&] {
            session->port_->unreserve(span.begin, span.app_bytes + span.alias_bytes);
            session->port_->work_through(nullptr);
        });
        return nullptr;
    }
    session->core_->telemetry.announce_no_budget(info.total_bytes);
    executor::set_trial_block_apart(*session->core_, lock);
    log::info(
        "GPU {}: {} of memory, {} free; buffers may take {} of that and {} of host memory, where evicted "
        "memory {}",
        gpu.device, util::format_bytes(info.total_bytes), util::format_bytes(info.free_bytes),
        util::format_bytes(session->core_->engine.budget_bytes()), util::format_bytes(host),
        session->port_->maps_host_memory() ? "stays addressable" : "is unmapped");
    return session;
}

std::uint64_t Session::reclaim(std::uint64_t bytes) {
    executor::SessionLock lock(core_->mutex);
    const std::uint64_t held = core_->device_blocks.held_bytes();
    executor::begin_pressure(*core_, lock);
    // What a trial of moves was made on is the driver's again.
    const std::uint64_t left = std::min(held, core_->device_blocks.held_bytes());
    return held - left + migrator_->reclaim(bytes, lock);
}

void Session::look_at_budget() {
    executor::SessionLock lock(core_->mutex);
    executor::refresh_budget(*core_, lock);
}

std::uint64_t Session::largest_chunk() const {
    const executor::SessionLock lock(core_->mutex);
    return engine::largest_chunk(executor::budget_in_turn(*core_), core_->granularity);
}

std::uint64_t Session::piece_bytes() const {
    const std::uint64_t chunk = largest_chunk();
    const executor::SessionLock lock(core_->mutex);
    return std::max(executor::budget_in_turn(*core_) / 4 / chunk, std::uint64_t{1}) * chunk;
}

}  // namespace lms::session

#include "shim/migration/telemetry.h"

#include <algorithm>
#include <vector>

#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"

namespace lms::engine {
namespace {

void note_allocated(const State& state, std::uint64_t bytes) {
    trace::LiveGpu& gpu = trace::live_gpu(state.device);
    trace::set(gpu.used, 1);
    trace::set(gpu.allocated_bytes, bytes);
    trace::raise(gpu.peak_allocated_bytes, bytes);
    if (bytes > state.budget_bytes) trace::raise(gpu.most_beyond_bytes, bytes - state.budget_bytes);
}

}  // namespace

void note_levels(const State& state) {
    state.mutex.check_held();
    const std::uint64_t resident = state.residency.device_bytes();
    trace::raise(trace::counters().peak_resident_bytes, resident);
    trace::raise(trace::counters().peak_host_bytes, state.host_blocks.held_bytes());
    trace::LiveGpu& gpu = trace::live_gpu(state.device);
    trace::set(gpu.budget_bytes, state.budget_bytes);
    trace::set(gpu.resident_bytes, resident);
    trace::set(gpu.host_bytes, state.residency.host_bytes());
    if (trace::Writer* writer = trace::writer()) {
        writer->write(
            trace::Residency{state.device, resident, state.residency.host_bytes(), trace::now_ns()});
    }
}

void note_move(const State& state, trace::Direction direction, core::ChunkId id, trace::MoveReason reason,
               std::uint64_t begin_ns, std::uint64_t end_ns, bool copied) {
    const core::Chunk& chunk = state.residency.chunk(id);
    trace::Counters& counters = trace::counters();
    const bool in = direction == trace::Direction::In;
    trace::add(in ? counters.fills : counters.evictions);
    const std::uint64_t bytes = copied ? chunk.bytes : 0;
    trace::add(in ? counters.bytes_in : counters.bytes_out, bytes);
    if (trace::Writer* writer = trace::writer()) {
        writer->write(
            trace::Move{state.device, direction, chunk.allocation, id, bytes, reason, begin_ns, end_ns});
    }
}

void note_stall(const State& state, trace::StallReason reason, std::uint64_t begin_ns, std::uint64_t end_ns) {
    trace::add(trace::counters().stalls);
    trace::add(trace::counters().stall_ns, end_ns - begin_ns);
    if (trace::Writer* writer = trace::writer()) {
        writer->write(trace::Stall{state.device, reason, begin_ns, end_ns});
    }
}

void note_allocation(const State& state, core::AllocationId id, std::span<const std::string> call_site) {
    trace::add(trace::counters().allocations);
    note_allocated(state, state.residency.allocated_bytes());
    if (trace::Writer* writer = trace::writer()) {
        const core::Allocation& buffer = state.residency.allocation(id);
        writer->write(
            trace::Allocation{state.device, id, buffer.address, buffer.bytes, trace::now_ns(), call_site});
    }
}

void note_free(const State& state, core::AllocationId id) {
    trace::add(trace::counters().frees);
    note_allocated(state, state.residency.allocated_bytes() - state.residency.allocation(id).bytes);
    if (trace::Writer* writer = trace::writer())
        writer->write(trace::Free{state.device, id, trace::now_ns()});
}

void note_launch(const State& state, std::string_view kernel, CUstream stream, const ChunkPins& hold,
                 std::uint64_t begin_ns) {
    trace::Writer* writer = trace::writer();
    if (!writer) return;
    std::vector<std::uint32_t> buffers;
    for (const auto* chunks : {&hold.pinned, &hold.in_place}) {
        for (const core::ChunkId id : *chunks) buffers.push_back(state.residency.chunk(id).allocation);
    }
    std::sort(buffers.begin(), buffers.end());
    buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
    writer->write(trace::Launch{state.device, kernel, reinterpret_cast<std::uint64_t>(stream), buffers,
                                begin_ns, trace::now_ns()});
}

}  // namespace lms::engine

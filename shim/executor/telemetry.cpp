#include "shim/executor/telemetry.h"

#include <algorithm>
#include <vector>

#include "shim/trace/hot_buffers.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"

namespace lms::shim {
namespace {

// Others may take of the budget when all is allocated already.
void note_beyond(const State& state, std::uint64_t allocated_bytes) LMS_LOCKED {
    if (allocated_bytes <= state.engine.budget_bytes()) return;
    trace::raise(trace::live_gpu(state.device).most_beyond_bytes,
                 allocated_bytes - state.engine.budget_bytes());
}

void note_allocated(const State& state, std::uint64_t bytes) LMS_LOCKED {
    trace::LiveGpu& gpu = trace::live_gpu(state.device);
    trace::set(gpu.used, 1);
    trace::set(gpu.allocated_bytes, bytes);
    trace::raise(gpu.peak_allocated_bytes, bytes);
    note_beyond(state, bytes);
}

std::vector<trace::Touched> touched(const State& state, std::span<const ChunkRequest> needs,
                                    std::span<const engine::ChunkId> in_place) LMS_LOCKED {
    std::vector<trace::Touched> chunks;
    chunks.reserve(needs.size());
    for (const ChunkRequest& need : needs) {
        // What is meant and left in place is used there.
        if ((need.aside && need.part == 0) || gone(need, state.residency)) continue;
        const bool there = !in_place.empty() && std::ranges::find(in_place, need.chunk) != in_place.end();
        chunks.push_back({need.chunk, state.residency.chunk(need.chunk).allocation, need.overwritten,
                          need.may_stay, there, !need.written});
    }
    return chunks;
}

// Null: no trace is written, or it has not been told yet what there is.
trace::Writer* writer_for(const State& state) LMS_LOCKED {
    return state.traced ? trace::writer() : nullptr;
}

void tell_allocation(const State& state, engine::AllocationId id,
                     std::span<const std::string> call_site) LMS_LOCKED {
    trace::Writer* const writer = writer_for(state);
    if (!writer) return;
    const engine::Allocation& buffer = state.residency.allocation(id);
    std::vector<trace::Piece> pieces;
    for (const engine::ChunkId chunk : buffer.chunks) {
        const engine::State where = state.residency.chunk(chunk).state;
        pieces.push_back({chunk, state.residency.chunk(chunk).bytes,
                          where != engine::State::OnHost && where != engine::State::Empty});
    }
    writer->write(trace::Allocation{state.device, id, buffer.address, buffer.asked_bytes, trace::now_ns(),
                                    call_site, pieces});
}

void tell_speeds(const State& state) LMS_LOCKED {
    trace::Writer* const writer = writer_for(state);
    const std::uint64_t in = state.speeds.bytes_per_s(trace::Direction::In);
    const std::uint64_t out = state.speeds.bytes_per_s(trace::Direction::Out);
    trace::set(trace::live_gpu(state.device).in_bytes_per_s, in);
    trace::set(trace::live_gpu(state.device).out_bytes_per_s, out);
    if (writer && in + out > 0) writer->write(trace::LinkSpeeds{state.device, in, out, trace::now_ns()});
}

void tell_levels(const State& state) LMS_LOCKED {
    if (trace::Writer* const writer = writer_for(state)) {
        writer->write(trace::Residency{state.device, state.residency.device_bytes(),
                                       state.residency.host_bytes(), trace::now_ns(),
                                       state.engine.budget_bytes()});
    }
}

}  // namespace

void note_gpu(const State& state) {
    trace::Writer* writer = trace::writer();
    if (!writer) return;
    device::MemoryInfo memory{};
    state.port.memory_info(memory);
    const std::string name = state.port.name();
    writer->write(trace::Gpu{state.device, name, memory.total_bytes, state.granularity,
                             state.port.maps_host_memory(), trace::now_ns()});
}

void note_standing(const State& state) {
    for (const engine::AllocationId id : state.residency.allocations()) tell_allocation(state, id, {});
    if (state.engine.budget_bytes() > 0) tell_levels(state);
    tell_speeds(state);
}

void note_levels(const State& state) {
    state.mutex.check_held();
    const std::uint64_t resident = state.residency.device_bytes();
    trace::raise(trace::counters().peak_resident_bytes, resident);
    trace::raise(trace::counters().peak_host_bytes, state.host_blocks.held_bytes());
    trace::LiveGpu& gpu = trace::live_gpu(state.device);
    trace::set(gpu.budget_bytes, state.engine.budget_bytes());
    trace::set(gpu.resident_bytes, resident);
    note_beyond(state, state.residency.allocated_bytes());
    trace::set(gpu.host_bytes, state.residency.host_bytes());
    tell_levels(state);
}

void note_move(State& state, trace::Direction direction, engine::ChunkId id, trace::MoveReason reason,
               std::uint64_t begin_ns, std::uint64_t end_ns, bool copied) {
    const engine::Chunk& chunk = state.residency.chunk(id);
    trace::Counters& counters = trace::counters();
    const bool in = direction == trace::Direction::In;
    trace::add(in ? counters.fills : counters.evictions);
    const std::uint64_t bytes = copied ? chunk.bytes : 0;
    trace::add(in ? counters.bytes_in : counters.bytes_out, bytes);
    trace::hot_buffers().moved(state.device, chunk.allocation, direction, bytes);
    const Backing& backing = state.backing[id];
    // Else only the first are, so that somebody can tell how fast the link is.
    const bool all_are_timed = state.traced || state.large.timed;
    std::optional<device::DeviceTime> seen;
    if (copied && (all_are_timed || !state.speeds.known()))
        seen = state.port.time_of_copy(in ? backing.device.alias : backing.host.alias);
    if (seen && all_are_timed) note_copy(state, direction, bytes, *seen);
    if (trace::Writer* writer = writer_for(state)) {
        writer->write(trace::Move{state.device, direction, chunk.allocation, id, bytes, reason,
                                  seen ? seen->begin_ns : begin_ns, seen ? seen->end_ns : end_ns,
                                  seen.has_value()});
    }
    if (seen && state.speeds.copied(direction, bytes, seen->end_ns - seen->begin_ns)) tell_speeds(state);
    if (seen && !all_are_timed && state.speeds.known()) state.port.time_no_copies();
}

void note_stall(const State& state, std::string_view kernel, trace::StallCause cause,
                std::span<const ChunkRequest> lacked, std::uint64_t begin_ns, std::uint64_t end_ns) {
    trace::add(trace::counters().stalls);
    trace::add(trace::counters().stall_ns, end_ns - begin_ns);
    if (trace::Writer* writer = writer_for(state)) {
        const std::vector<trace::Touched> chunks = touched(state, lacked, {});
        std::uint64_t bytes = 0;
        for (const trace::Touched& each : chunks) bytes += state.residency.chunk(each.chunk).bytes;
        writer->write(trace::Stall{state.device, cause, kernel, bytes, chunks, begin_ns, end_ns});
    }
}

void note_allocation(const State& state, engine::AllocationId id, std::span<const std::string> call_site) {
    trace::add(trace::counters().allocations);
    note_allocated(state, state.residency.allocated_bytes());
    trace::hot_buffers().allocated(state.device, id, state.residency.allocation(id).asked_bytes, call_site);
    tell_allocation(state, id, call_site);
}

void note_stream_free(const State& state, engine::AllocationId id, CUstream stream) {
    if (trace::Writer* const writer = writer_for(state)) {
        writer->write(
            trace::StreamFree{state.device, id, reinterpret_cast<std::uint64_t>(stream), trace::now_ns()});
    }
}

void note_free(const State& state, engine::AllocationId id) {
    trace::add(trace::counters().frees);
    note_allocated(state, state.residency.allocated_bytes() - state.residency.allocation(id).bytes);
    trace::hot_buffers().freed(state.device, id);
    if (trace::Writer* writer = writer_for(state))
        writer->write(trace::Free{state.device, id, trace::now_ns()});
}

void note_work_over(const State& state, std::uint64_t launched_ns) {
    if (trace::Writer* const writer = writer_for(state))
        writer->write(trace::WorkOver{state.device, launched_ns, trace::now_ns()});
}

void note_launch(const State& state, std::string_view kernel, trace::Copied copied, CUstream stream,
                 std::span<const ChunkRequest> needs, const ChunkPins& hold, std::uint64_t begin_ns) {
    trace::Writer* writer = writer_for(state);
    if (!writer || (kernel.empty() && needs.empty())) return;
    const std::vector<trace::Touched> chunks = touched(state, needs, hold.in_place);
    writer->write(trace::Launch{state.device, kernel, reinterpret_cast<std::uint64_t>(stream), chunks,
                                begin_ns, trace::now_ns(), hold.opaque || hold.unseen, copied});
}

void note_work_times(State& state) {
    state.samples.take([&](std::uint64_t piece, const LaunchSamples::Told& work) LMS_LOCKED {
        const auto seen = state.port.time_of_work(piece);
        trace::Writer* const writer = writer_for(state);
        if (!seen || !writer) return seen.has_value();
        if (work.kernel.empty()) {
            writer->write(trace::CopyTime{state.device, work.copied, seen->begin_ns, seen->end_ns});
        } else {
            writer->write(trace::KernelTime{state.device, work.kernel, seen->begin_ns, seen->end_ns,
                                            LaunchSamples::kOneIn});
        }
        return true;
    });
}

}  // namespace lms::shim

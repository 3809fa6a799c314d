#include "shim/telemetry/telemetry.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "shim/trace/hot_buffers.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"

namespace lms::telemetry {

// Others may take of the budget when all is allocated already.
void Telemetry::note_beyond(std::uint64_t allocated_bytes) const {
    if (allocated_bytes <= engine_.budget_bytes()) return;
    trace::raise(trace::live_gpu(device_).most_beyond_bytes, allocated_bytes - engine_.budget_bytes());
}

void Telemetry::note_allocated(std::uint64_t bytes) const {
    trace::LiveGpu& gpu = trace::live_gpu(device_);
    trace::set(gpu.used, 1);
    trace::set(gpu.allocated_bytes, bytes);
    trace::raise(gpu.peak_allocated_bytes, bytes);
    note_beyond(bytes);
}

std::vector<trace::Touched> Telemetry::touched(std::span<const engine::ChunkRequest> needs,
                                               std::span<const engine::ChunkId> in_place) const {
    std::vector<trace::Touched> chunks;
    chunks.reserve(needs.size());
    for (const engine::ChunkRequest& need : needs) {
        // What is meant and left in place is used there.
        if ((need.aside && need.part == 0) || gone(need, engine_.residency())) continue;
        const bool there = !in_place.empty() && std::ranges::find(in_place, need.chunk) != in_place.end();
        chunks.push_back({need.chunk, engine_.residency().chunk(need.chunk).allocation, need.overwritten,
                          need.may_stay, there, !need.written});
    }
    return chunks;
}

// Null: no trace is written, or it has not been told yet what there is.
trace::Writer* Telemetry::writer() const {
    return traced ? trace::writer() : nullptr;
}

void Telemetry::tell_allocation(engine::AllocationId id, std::span<const std::string> call_site) const {
    trace::Writer* const to = writer();
    if (!to) return;
    const engine::Allocation& buffer = engine_.residency().allocation(id);
    std::vector<trace::Piece> pieces;
    for (const engine::ChunkId chunk : buffer.chunks) {
        const engine::State where = engine_.residency().chunk(chunk).state;
        pieces.push_back({chunk, engine_.residency().chunk(chunk).bytes,
                          where != engine::State::OnHost && where != engine::State::Empty});
    }
    to->write(trace::Allocation{device_, id, buffer.address, buffer.asked_bytes, trace::now_ns(), call_site,
                                pieces});
}

void Telemetry::tell_speeds() const {
    trace::Writer* const to = writer();
    const std::uint64_t in = speeds.bytes_per_s(trace::Direction::In);
    const std::uint64_t out = speeds.bytes_per_s(trace::Direction::Out);
    trace::set(trace::live_gpu(device_).in_bytes_per_s, in);
    trace::set(trace::live_gpu(device_).out_bytes_per_s, out);
    if (to && in + out > 0) to->write(trace::LinkSpeeds{device_, in, out, trace::now_ns()});
}

void Telemetry::tell_levels() const {
    if (trace::Writer* const to = writer()) {
        to->write(trace::Residency{device_, engine_.residency().device_bytes(),
                                   engine_.residency().host_bytes(), trace::now_ns(),
                                   engine_.budget_bytes()});
    }
}

void Telemetry::tell_unmanaged() const {
    trace::Writer* const to = writer();
    if (to && unmanaged_bytes_) to->write(trace::Unmanaged{device_, *unmanaged_bytes_, trace::now_ns()});
}

void Telemetry::note_unmanaged(std::uint64_t bytes) {
    if (std::exchange(unmanaged_bytes_, bytes) != bytes) tell_unmanaged();
}

void note_gpu(int device, device::Port& port) {
    trace::Writer* const to = trace::writer();
    if (!to) return;
    device::MemoryInfo memory{};
    port.memory_info(memory);
    const std::string name = port.name();
    to->write(trace::Gpu{device, name, memory.total_bytes, port.granularity(), port.maps_host_memory(),
                         trace::now_ns()});
}

void Telemetry::note_standing() const {
    for (const engine::AllocationId id : engine_.residency().allocations()) tell_allocation(id, {});
    if (engine_.budget_bytes() > 0) tell_levels();
    tell_speeds();
    tell_unmanaged();
}

void Telemetry::note_levels() const {
    const std::uint64_t resident = engine_.residency().device_bytes();
    trace::raise(trace::counters().peak_resident_bytes, resident);
    trace::raise(trace::counters().peak_host_bytes, held_host_bytes());
    trace::LiveGpu& gpu = trace::live_gpu(device_);
    trace::set(gpu.budget_bytes, engine_.budget_bytes());
    trace::set(gpu.resident_bytes, resident);
    note_beyond(engine_.residency().allocated_bytes());
    trace::set(gpu.host_bytes, engine_.residency().host_bytes());
    tell_levels();
}

void Telemetry::note_grant(std::uint64_t granted_bytes) const {
    trace::LiveGpu& gpu = trace::live_gpu(device_);
    trace::set(gpu.granted_bytes, granted_bytes);
    const std::uint64_t least = gpu.least_granted_bytes;
    if (granted_bytes > 0 && (least == 0 || granted_bytes < least))
        trace::set(gpu.least_granted_bytes, granted_bytes);
}

std::optional<device::DeviceTime> Telemetry::note_move(trace::Direction direction, engine::ChunkId id,
                                                       trace::MoveReason reason, std::uint64_t begin_ns,
                                                       std::uint64_t end_ns, bool copied, bool is_timed) {
    const engine::Chunk& chunk = engine_.residency().chunk(id);
    trace::Counters& counters = trace::counters();
    const bool in = direction == trace::Direction::In;
    trace::add(in ? counters.fills : counters.evictions);
    const std::uint64_t bytes = copied ? chunk.bytes : 0;
    trace::add(in ? counters.bytes_in : counters.bytes_out, bytes);
    if (in) moved_in_bytes += bytes;
    trace::hot_buffers().moved(device_, chunk.allocation, direction, bytes);
    const engine::Backing& backing = engine_.backing()[id];
    // Else only the first are, so that somebody can tell how fast the link is.
    const bool all_are_timed = traced || is_timed;
    std::optional<device::DeviceTime> seen;
    if (copied && (all_are_timed || !speeds.known()))
        seen = port_.time_of_copy(in ? backing.device.alias : backing.host.alias);
    if (trace::Writer* const to = writer()) {
        to->write(trace::Move{device_, direction, chunk.allocation, id, bytes, reason,
                              seen ? seen->begin_ns : begin_ns, seen ? seen->end_ns : end_ns,
                              seen.has_value()});
    }
    if (seen && speeds.copied(direction, bytes, seen->end_ns - seen->begin_ns)) tell_speeds();
    if (seen && !all_are_timed && speeds.known()) port_.time_no_copies();
    return seen;
}

void Telemetry::note_stall(std::string_view kernel, trace::StallCause cause,
                           std::span<const engine::ChunkRequest> lacked, std::uint64_t begin_ns,
                           std::uint64_t end_ns) const {
    trace::add(trace::counters().stalls);
    trace::add(trace::counters().stall_ns, end_ns - begin_ns);
    if (trace::Writer* to = writer()) {
        const std::vector<trace::Touched> chunks = touched(lacked, {});
        std::uint64_t bytes = 0;
        for (const trace::Touched& each : chunks) bytes += engine_.residency().chunk(each.chunk).bytes;
        to->write(trace::Stall{device_, cause, kernel, bytes, chunks, begin_ns, end_ns});
    }
}

void Telemetry::note_allocation(engine::AllocationId id, std::span<const std::string> call_site) const {
    trace::add(trace::counters().allocations);
    note_allocated(engine_.residency().allocated_bytes());
    trace::hot_buffers().allocated(device_, id, engine_.residency().allocation(id).asked_bytes, call_site);
    tell_allocation(id, call_site);
}

void Telemetry::note_stream_free(engine::AllocationId id, CUstream stream) const {
    if (trace::Writer* const to = writer()) {
        to->write(trace::StreamFree{device_, id, reinterpret_cast<std::uint64_t>(stream), trace::now_ns()});
    }
}

void Telemetry::note_free(engine::AllocationId id) const {
    trace::add(trace::counters().frees);
    note_allocated(engine_.residency().allocated_bytes() - engine_.residency().allocation(id).bytes);
    trace::hot_buffers().freed(device_, id);
    if (trace::Writer* to = writer()) to->write(trace::Free{device_, id, trace::now_ns()});
}

void Telemetry::note_work_over(std::uint64_t launched_ns) const {
    if (trace::Writer* const to = writer()) to->write(trace::WorkOver{device_, launched_ns, trace::now_ns()});
}

void Telemetry::note_launch(std::string_view kernel, trace::Copied copied, CUstream stream,
                            std::span<const engine::ChunkRequest> needs, const engine::ChunkPins& hold,
                            std::uint64_t begin_ns) const {
    trace::Writer* to = writer();
    if (!to || (kernel.empty() && needs.empty())) return;
    const std::vector<trace::Touched> chunks = touched(needs, hold.in_place);
    to->write(trace::Launch{device_, kernel, reinterpret_cast<std::uint64_t>(stream), chunks, begin_ns,
                            trace::now_ns(), hold.opaque || hold.unseen, copied});
}

void Telemetry::note_work_times() {
    samples.take([&](std::uint64_t piece, const LaunchSamples::Told& work) {
        const auto seen = port_.time_of_work(piece);
        trace::Writer* const to = writer();
        if (!seen || !to) return seen.has_value();
        if (work.kernel.empty()) {
            to->write(trace::CopyTime{device_, work.copied, seen->begin_ns, seen->end_ns});
        } else {
            to->write(
                trace::KernelTime{device_, work.kernel, seen->begin_ns, seen->end_ns, LaunchSamples::kOneIn});
        }
        return true;
    });
}

}  // namespace lms::telemetry

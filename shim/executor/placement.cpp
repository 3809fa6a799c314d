#include "shim/executor/placement.h"

#include <algorithm>
#include <set>

#include "shim/device/patience.h"
#include "shim/executor/budget.h"
#include "shim/executor/eviction.h"
#include "shim/program/memory_changes.h"
#include "shim/telemetry/telemetry.h"
#include "shim/util/bounds.h"
#include "shim/util/log.h"

namespace lms::executor {

std::vector<MappedAt> addresses_of(const Core& core, engine::ChunkId id) {
    core.mutex.check_held();
    const engine::Chunk& chunk = core.residency.chunk(id);
    const auto program = core.program_buffers.find(chunk.allocation);
    if (program == core.program_buffers.end()) return {{chunk.address, std::nullopt}};
    const std::uint64_t offset = chunk.address - core.residency.allocation(chunk.allocation).address;
    std::vector<MappedAt> addresses;
    for (const ProgramBuffer::Mapped& view : program->second.views)
        addresses.push_back({view.address + offset, view.access});
    return addresses;
}

std::vector<Remap> remaps_of(const Core& core, engine::ChunkId id, const Block& from, const Block& to) {
    std::vector<Remap> remaps;
    for (MappedAt& at : addresses_of(core, id)) remaps.push_back({std::move(at), from, to});
    return remaps;
}

namespace {

bool is_mapped(const Block& block) {
    return block.bytes > 0 && !block.pinned;
}

CUresult map(device::Port& port, const MappedAt& at, const Block& block) {
    return at.access ? port.map_for(at.address, block.bytes, block.handle, *at.access)
                     : port.map(at.address, block.bytes, block.handle, block.place);
}

// Makes an address lead again to what it led to before. A kernel that finds nothing there ends the program:
// what the driver refuses now (it may lack memory for page tables) is asked for again, for a while, and by
// who needs it.
void map_back(device::Port& port, const MappedAt& at, const Block& from) {
    if (!is_mapped(from)) return;
    const CUresult status = device::patiently(
        [&] { return map(port, at, from); },
        [](CUresult answer) { return answer == CUDA_SUCCESS || device::is_sticky(answer); });
    if (status == CUDA_SUCCESS) return;
    // After the context has failed no work will miss it. But memory of the program's own outlives the
    // context, and what is not there cannot be unmapped.
    if (!device::is_sticky(status))
        log::error(
            "the driver unmapped {} bytes and refuses to map them again: work on them fails until it does",
            from.bytes);
    port.missing().add(at.address, [&port, at, from] { return map(port, at, from) == CUDA_SUCCESS; });
}

CUresult remap_one(device::Port& port, const MappedAt& at, const Block& from, const Block& to) {
    CUresult status = is_mapped(from) ? port.unmap(at.address, from.bytes) : CUDA_SUCCESS;
    if (status != CUDA_SUCCESS || !is_mapped(to)) return status;
    status = map(port, at, to);
    if (status == CUDA_SUCCESS) return status;
    telemetry::announce_no_mappings();
    map_back(port, at, from);
    return status;
}

// So many mappings at most are let in, or taken away, in one call, which holds up other threads' calls.
constexpr std::size_t kMostInOneCall = 64;

// Of remaps the first ones that can be let in together: new memory of one place, side by side, with the
// default access. At least one.
std::span<const Remap> side_by_side(std::span<const Remap> remaps) {
    const auto is_new = [](const Remap& each) {
        return !is_mapped(each.from) && is_mapped(each.to) && !each.at.access;
    };
    const std::size_t most = is_new(remaps[0]) ? std::min(remaps.size(), kMostInOneCall) : 1;
    std::size_t count = 1;
    for (; count < most; ++count) {
        const Remap &before = remaps[count - 1], &next = remaps[count];
        if (!is_new(next) || next.to.place != before.to.place ||
            next.at.address != before.at.address + before.to.bytes)
            break;
    }
    return remaps.first(count);
}

// Maps these one by one and asks for access once for all, which costs the driver more than the maps. False:
// it refused, and none is mapped.
bool map_together(device::Port& port, std::span<const Remap> remaps) {
    std::uint64_t bytes = 0;
    std::size_t mapped = 0;
    for (const Remap& each : remaps) {
        if (port.map_for(each.at.address, each.to.bytes, each.to.handle, {}) != CUDA_SUCCESS) break;
        bytes += each.to.bytes;
        ++mapped;
    }
    if (mapped == remaps.size() &&
        port.admit(remaps[0].at.address, bytes, remaps[0].to.place) == CUDA_SUCCESS)
        return true;
    for (const Remap& each : remaps.first(mapped)) port.discard(each.at.address, each.to.bytes);
    return false;
}

}  // namespace

CUresult remap(device::Port& port, std::span<const Remap> remaps) {
    for (std::size_t done = 0; done < remaps.size();) {
        const std::span<const Remap> run = side_by_side(remaps.subspan(done));
        if (run.size() > 1 && map_together(port, run)) {
            done += run.size();
            continue;
        }
        for (const Remap& each : run) {
            const CUresult status = remap_one(port, each.at, each.from, each.to);
            if (status != CUDA_SUCCESS) {
                undo(port, remaps.first(done));
                return status;
            }
            ++done;
        }
    }
    return CUDA_SUCCESS;
}

void undo(device::Port& port, std::span<const Remap> remaps) {
    for (std::size_t i = remaps.size(); i-- > 0;) {
        const Remap& each = remaps[i];
        // What is not taken away now is before anything else is mapped there.
        if (is_mapped(each.to)) port.discard(each.at.address, each.to.bytes);
        map_back(port, each.at, each.from);
    }
}

bool program_works(const Core& core) {
    std::vector<engine::Use> uses = core.fences.latest_of_program();
    return engine::any_unfinished(uses, core.residency.timelines);
}

bool must_drain(const Core& core) {
    return core.remaps_wait && program_works(core);
}

namespace {

// What leads to a block, of those that a buffer had.
struct Piece {
    engine::Address address;
    std::uint64_t bytes;
    std::size_t block;
};

// Takes pieces away, those side by side in one call where the driver allows it. Which blocks are still
// mapped: it refused.
std::set<std::size_t> discard(device::Port& port, std::span<Piece> pieces) LMS_UNLOCKED {
    std::set<std::size_t> stay;
    std::ranges::sort(pieces, {}, &Piece::address);
    // What the driver had lost is not there to be taken away.
    const bool apart = port.missing().any();
    for (std::size_t i = 0, end = 0; i < pieces.size(); i = end) {
        std::uint64_t bytes = 0;
        const auto follows = [&] { return pieces[end].address == pieces[i].address + bytes; };
        const std::size_t most = apart ? i + 1 : std::min(pieces.size(), i + kMostInOneCall);
        for (end = i; end < most && follows(); ++end) bytes += pieces[end].bytes;
        if (end - i > 1 && port.unmap(pieces[i].address, bytes) == CUDA_SUCCESS) continue;
        for (const Piece& each : pieces.subspan(i, end - i)) {
            if (port.discard(each.address, each.bytes) != CUDA_SUCCESS) stay.insert(each.block);
        }
    }
    return stay;
}

}  // namespace

void release(Core& core, engine::AllocationId id, SessionLock& lock) {
    const engine::Residency& residency = core.residency;
    const engine::Allocation buffer = residency.allocation(id);
    // From here on its memory is nobody's victim, and will be free: who needs room has something to wait for.
    const Holder holder(core);
    while (core.engine.must_wait_to_remove(id)) {
        core.changed.wait_for(lock, bounds::kQuickGlance);
        poll_completions(core, lock);
    }
    for (const engine::ChunkId chunk : buffer.chunks) core.engine.drop_copy(chunk);
    core.program_pins.end_of(id);
    std::vector<Block> blocks;
    std::vector<Piece> pieces;
    for (const engine::ChunkId chunk : buffer.chunks) {
        const engine::State where = residency.chunk(chunk).state;
        if (where == engine::State::Empty) continue;
        const Backing& backing = core.backing[chunk];
        blocks.push_back(where == engine::State::OnHost ? backing.host : backing.device);
        if (!is_mapped(blocks.back())) continue;
        for (const MappedAt& at : addresses_of(core, chunk))
            pieces.push_back({at.address, blocks.back().bytes, blocks.size() - 1});
    }
    std::vector<engine::RecordedMappings::Serial> serials;
    for (const engine::ChunkId chunk : buffer.chunks) serials.push_back(residency.chunk(chunk).serial);
    core.telemetry.note_free(id);
    core.engine.remove(id);
    ++program::memory_changes;
    core.program_buffers.erase(id);

    const std::set<std::size_t> stay = unlocked(lock, [&] { return discard(core.port, pieces); });
    std::vector<Block> lost;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (!stay.contains(i)) {
            core.engine.put_freed(blocks[i]);
        } else if (!core.engine.is_read(blocks[i])) {
            lost.push_back(blocks[i]);
        }
    }
    // Where something is mapped still, nothing else can be: its address and its memory are never used again.
    if (stay.empty()) {
        if (core.recorded.gone(serials, {buffer.address, buffer.bytes}))
            core.arena.give_back(buffer.address, buffer.bytes);
    } else {
        log::error("the driver refuses to unmap {} ranges: their memory stays in use", stay.size());
        for (const Block& block : lost) core.source_of(block.place).lose({&block, 1}, lock);
    }
    settle_host(core);
    core.changed.notify_all();
}

namespace {

void forget_ended_copies(Core& core) LMS_LOCKED {
    const auto& pending = core.engine.pending_evictions();
    std::erase_if(core.copy_fences, [&](const auto& each) {
        return std::ranges::find(pending, each.first, &engine::PendingEviction::eviction) == pending.end();
    });
}

}  // namespace

void poll_completions(Core& core, SessionLock& lock) {
    core.fences.poll(lock);
    for (const std::uint64_t launched_ns : core.fences.take_over())
        core.telemetry.note_work_over(launched_ns);
    for (const engine::CameIn& each : core.engine.complete_moves())
        note_move(core, trace::Direction::In, each.chunk, trace::MoveReason::Needed, each.since_ns,
                  trace::now_ns());
    if (core.copy_fences.size() > core.engine.pending_evictions().size()) forget_ended_copies(core);
    core.host_blocks.free_unpinned();
    core.telemetry.note_work_times();
}

void free_completed(Core& core, SessionLock& lock) {
    const auto unheld = [&](engine::AllocationId id) LMS_LOCKED { return !core.engine.is_held(id); };
    while (const auto id = core.engine.pending_frees.take_finished(core.residency.timelines, unheld))
        release(core, *id, lock);
}

}  // namespace lms::executor

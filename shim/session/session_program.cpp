// Memory of handles of the program's own: it comes and goes at the program's addresses.
#include <algorithm>

#include "shim/executor/block_allocation.h"
#include "shim/executor/budget.h"
#include "shim/executor/placement.h"
#include "shim/session/session.h"
#include "shim/telemetry/telemetry.h"
#include "shim/trace/callstack.h"
#include "shim/trace/writer.h"
#include "shim/util/bounds.h"

namespace lms::session {

using engine::ChunkId;

namespace {

// Keeps the chunks of a buffer where they are. Made and ended with the session's lock held, which is dropped
// while moves of them end.
class HeldStill {
  public:
    HeldStill(executor::Core& core, engine::AllocationId id, executor::SessionLock& lock) LMS_LOCKED
        : core_(core),
          chunks_(core.residency.allocation(id).chunks) {
        const auto moves = [&](ChunkId chunk)
                               LMS_LOCKED { return core_.engine.must_wait_to_hold_still(chunk); };
        while (std::ranges::any_of(chunks_, moves)) core_.changed.wait_for(lock, bounds::kQuickGlance);
        for (const ChunkId chunk : chunks_) core_.engine.hold_still(chunk);
    }
    ~HeldStill() {
        for (const ChunkId chunk : chunks_) core_.engine.end_still(chunk);
        core_.changed.notify_all();
    }
    HeldStill(const HeldStill&) = delete;
    HeldStill& operator=(const HeldStill&) = delete;

  private:
    executor::Core& core_;
    const std::vector<ChunkId> chunks_;
};

// The memory that a buffer has.
std::vector<BufferPiece> pieces_of(const executor::Core& core, engine::AllocationId id) LMS_LOCKED {
    std::vector<BufferPiece> pieces;
    const engine::Allocation& buffer = core.residency.allocation(id);
    for (const ChunkId chunk : buffer.chunks) {
        const engine::Chunk& each = core.residency.chunk(chunk);
        const engine::Backing& backing = core.backing[chunk];
        if (each.state == engine::State::Empty) continue;
        pieces.push_back({each.address - buffer.address,
                          each.state == engine::State::OnHost ? backing.host : backing.device});
    }
    return pieces;
}

// Makes `view` of a buffer lead to that memory, or, `away`, to nothing any more.
std::vector<executor::Remap> remaps_of(std::span<const BufferPiece> pieces,
                                       const executor::ProgramBuffer::Mapped& view, bool away) {
    std::vector<executor::Remap> remaps;
    for (const BufferPiece& piece : pieces) {
        remaps.push_back({{view.address + piece.offset, view.access}, {}, piece.block});
        if (away) std::swap(remaps.back().from, remaps.back().to);
    }
    return remaps;
}

// A mapping of the program's is one to it: where the context fails under the first part's end, the driver
// would have taken the whole away before.
CUresult take_away(device::Port& port, std::span<const executor::Remap> parts) {
    if (parts.empty()) return CUDA_SUCCESS;
    if (const CUresult status = remap(port, parts.first(1)); status != CUDA_SUCCESS) return status;
    const CUresult status = remap(port, parts.subspan(1));
    if (status == CUDA_SUCCESS || device::is_sticky(status)) return CUDA_SUCCESS;
    undo(port, parts.first(1));
    return status;
}

executor::ProgramBuffer::Mapped& view_at(executor::ProgramBuffer& buffer, engine::Address address) {
    return *std::ranges::find(buffer.views, address, &executor::ProgramBuffer::Mapped::address);
}

}  // namespace

CUresult Session::create(std::uint64_t bytes, engine::Address& home, bool collects) {
    executor::Core& core = *core_;
    std::vector<std::string> caller;
    if (trace::writer()) caller = trace::call_site();
    if (const CUresult health = port_->health(); health != CUDA_SUCCESS) return health;
    executor::SessionLock lock(core.mutex);
    const auto id = enter(bytes, collects, lock);
    if (!id) return CUDA_ERROR_OUT_OF_MEMORY;
    core.program_buffers[*id];
    // Refused later, at cuMemMap(), it would be an error that programs do not expect.
    if (!will_be_placed(*id, lock)) {
        release(core, *id, lock);
        core.telemetry.announce_no_host_memory(bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    core.telemetry.note_allocation(*id, caller);
    home = core.residency.allocation(*id).address;
    return CUDA_SUCCESS;
}

bool Session::will_be_placed(engine::AllocationId id, executor::SessionLock& lock) {
    executor::Core& core = *core_;
    if (core.residency.allocated_bytes() > core.engine.budget_bytes()) {
        executor::begin_pressure(core, lock);
        if (core.trial == executor::Core::Trial::Distrusted) return false;
    }
    const std::vector<ChunkId> chunks = core.residency.allocation(id).chunks;
    return std::ranges::all_of(chunks, [&](ChunkId chunk) LMS_LOCKED {
        return pin_ahead(core, core.residency.chunk(chunk).bytes, lock);
    });
}

bool Session::keeps_program_memory() const {
    const executor::SessionLock lock(core_->mutex);
    return !core_->program_buffers.empty();
}

void Session::forget(engine::Address home) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    const engine::AllocationId id = *core.residency.allocation_at(home);
    core.engine.kill(id);
    release(core, id, lock);
    // It has outlived its GPU's last context: nobody is about to use its blocks.
    if (!awake()) rest(lock);
}

CUresult Session::map(engine::Address home, engine::Address address) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    const engine::AllocationId id = *core.residency.allocation_at(home);
    executor::ProgramBuffer& buffer = core.program_buffers.at(id);
    if (!buffer.placed) {
        const CUresult status = place(id, lock);
        if (status == CUDA_ERROR_OUT_OF_MEMORY)
            core.telemetry.announce_no_host_memory(core.residency.allocation(id).bytes);
        if (status != CUDA_SUCCESS) return status;
        buffer.placed = true;
        note_levels(core);
    }
    const HeldStill still(core, id, lock);
    const executor::ProgramBuffer::Mapped view{address, {}};
    const std::vector<executor::Remap> remaps = remaps_of(pieces_of(core, id), view, false);
    const CUresult status = unlocked(lock, [&] { return remap(*port_, remaps); });
    if (status == CUDA_SUCCESS) buffer.views.push_back(view);
    return status;
}

CUresult Session::unmap(engine::Address home, engine::Address address) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    const engine::AllocationId id = *core.residency.allocation_at(home);
    executor::ProgramBuffer& buffer = core.program_buffers.at(id);
    const HeldStill still(core, id, lock);
    const std::vector<executor::Remap> remaps =
        remaps_of(pieces_of(core, id), view_at(buffer, address), true);
    const CUresult status = unlocked(lock, [&] { return take_away(*port_, remaps); });
    if (status == CUDA_SUCCESS) {
        core.program_pins.end_at(address, core.residency.allocation(id).bytes);
        std::erase_if(buffer.views, [&](const auto& view) { return view.address == address; });
    }
    return status;
}

CUresult Session::set_access(engine::Address home, engine::Address address,
                             std::span<const CUmemAccessDesc> access) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    const engine::AllocationId id = *core.residency.allocation_at(home);
    executor::ProgramBuffer& buffer = core.program_buffers.at(id);
    const HeldStill still(core, id, lock);
    const std::vector<BufferPiece> pieces = pieces_of(core, id);
    const program::Access before = view_at(buffer, address).access;
    // What nobody has set yet is none.
    program::Access undo(access.begin(), access.end());
    for (CUmemAccessDesc& each : undo) each.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (const CUmemAccessDesc& each : before) program::set(undo, each);
    const CUresult status = unlocked(lock, [&] {
        const auto set_one = [&](const BufferPiece& piece, std::span<const CUmemAccessDesc> now) {
            return piece.block.pinned ? CUDA_SUCCESS
                                      : port_->set_access(address + piece.offset, piece.block.bytes, now);
        };
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const CUresult result = set_one(pieces[i], access);
            if (result == CUDA_SUCCESS) continue;
            while (i-- > 0) set_one(pieces[i], undo);
            return result;
        }
        return CUDA_SUCCESS;
    });
    if (status != CUDA_SUCCESS) return status;
    for (const CUmemAccessDesc& each : access) program::set(view_at(buffer, address).access, each);
    return CUDA_SUCCESS;
}

namespace {

// While it lives nobody is given the chunks of a buffer: work that needs them waits. They end as they were.
class Away {
  public:
    Away(executor::Core& core, engine::AllocationId id) LMS_LOCKED : core_(core) {
        for (const ChunkId chunk : core.residency.allocation(id).chunks)
            before_.push_back({chunk, core.engine.begin_replacing(chunk)});
    }
    ~Away() {
        for (const auto& [chunk, was] : before_) core_.engine.end_replacing(chunk, was);
        core_.changed.notify_all();
    }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

  private:
    struct Before {
        ChunkId chunk;
        engine::State was;
    };
    executor::Core& core_;
    std::vector<Before> before_;
};

}  // namespace

bool Session::is_used(engine::Address home) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    // From here on somebody looks at what work reaches.
    executor::begin_pressure(core, lock);
    executor::poll_completions(core, lock);
    executor::look_at_earlier_work(core, lock);
    const engine::AllocationId id = *core.residency.allocation_at(home);
    // The driver's stays on the GPU.
    core.program_pins.end_of(id);
    return core.engine.is_used(id);
}

bool Session::await_unused(engine::Address home) {
    executor::SessionLock lock(core_->mutex);
    const auto id = core_->residency.allocation_at(home);
    if (!id) return true;
    return migrator_->await_unused(*id, lock);
}

std::optional<CUresult> Session::hand_over(engine::Address home, CUmemGenericAllocationHandle real) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    const engine::AllocationId id = *core.residency.allocation_at(home);
    std::optional<CUresult> status;
    // From here on somebody looks at what work reaches.
    executor::begin_pressure(core, lock);
    migrator_->run_quiesced(lock, [&]() LMS_LOCKED {
        if (!core.engine.is_used(id)) status = replace(id, real, lock);
    });
    if (status != CUDA_SUCCESS) return status;
    core.engine.kill(id);
    release(core, id, lock);
    executor::refresh_budget(core, lock);
    return CUDA_SUCCESS;
}

// Nothing moves, and nothing uses the buffer.
CUresult Session::replace(engine::AllocationId id, CUmemGenericAllocationHandle real,
                          executor::SessionLock& lock) {
    executor::Core& core = *core_;
    const std::uint64_t bytes = core.residency.allocation(id).bytes;
    const std::vector<BufferPiece> pieces = pieces_of(core, id);
    const auto alias = core.aliases.take(bytes);
    if (!alias) return CUDA_ERROR_OUT_OF_MEMORY;
    executor::ProgramBuffer& buffer = core.program_buffers.at(id);
    const Block whole{.place = device::Place::Device, .handle = real, .bytes = bytes};
    std::vector<executor::Remap> remaps;
    for (const executor::ProgramBuffer::Mapped& view : buffer.views) {
        for (executor::Remap& each : remaps_of(pieces, view, true)) remaps.push_back(std::move(each));
        remaps.push_back({{view.address, view.access}, {}, whole});
    }
    const Away away(core, id);
    const CUresult status = unlocked(lock, [&] {
        const CUresult copied = copy_to(*alias, bytes, real, pieces);
        return copied == CUDA_SUCCESS ? remap(*port_, remaps) : copied;
    });
    core.aliases.give_back(*alias, bytes);
    if (status == CUDA_SUCCESS) buffer.views.clear();
    return status;
}

// Copies the pieces into `real`, by way of `alias`.
CUresult Session::copy_to(engine::Address alias, std::uint64_t bytes, CUmemGenericAllocationHandle real,
                          std::span<const BufferPiece> pieces) {
    CUresult status = port_->map(alias, bytes, real, device::Place::Device);
    if (status != CUDA_SUCCESS) return status;
    for (const BufferPiece& piece : pieces) {
        if (status == CUDA_SUCCESS)
            status = port_->copy(alias + piece.offset, piece.block.alias, piece.block.bytes,
                                 device::Direction::In);
    }
    const CUstream in = port_->stream(device::Direction::In);
    const executor::FencePtr fence = core_->fences.record(in);
    const bool over = fence && wait_for(*fence, bounds::kHandOver);
    const CUresult waited = over ? CUDA_SUCCESS : port_->wait_for_stream(in);
    port_->discard(alias, bytes);
    return status == CUDA_SUCCESS ? waited : status;
}

}  // namespace lms::session

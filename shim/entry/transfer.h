// Work over ranges of memory, for the hooks of copies, sets and their like.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "shim/entry/context_check.h"
#include "shim/entry/cross_device_copy.h"
#include "shim/entry/guard.h"
#include "shim/entry/wait.h"
#include "shim/reach/pointer_tables.h"
#include "shim/session/program_memory.h"
#include "shim/session/submit.h"
#include "shim/trace/writer.h"

namespace lms::entry {

inline bool is_managed(core::Address address) {
    return engine::session_at(address) != nullptr;
}

inline bool any_managed(const std::vector<engine::Range>& ranges) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [](const engine::Range& range) { return is_managed(range.address); });
}

// False where a range begins in managed memory and goes on past the end of its buffer. The driver refuses
// that of its own memory; ours is mapped to the end of the granule.
inline bool within_buffer(const engine::Range& range) {
    engine::Session* session = range.bytes == 0 ? nullptr : engine::session_at(range.address);
    return !session || session->holds(range.address, range.bytes);
}

inline CUresult within_buffers(std::span<const engine::Range> ranges) {
    if (std::ranges::all_of(ranges, within_buffer)) return CUDA_SUCCESS;
    const CUresult error = refusal();
    return error == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : error;
}

// False where host memory is page-locked at its beginning, and not to its end.
inline bool locked_throughout(const engine::Range& range) {
    const auto ask = [](void* answer, CUpointer_attribute what, CUdeviceptr at) {
        return device::driver().cuPointerGetAttribute(answer, what, at) == CUDA_SUCCESS;
    };
    std::uint64_t offset = 0;
    while (offset < range.bytes) {
        CUdeviceptr begin = 0;
        std::size_t bytes = 0;
        const CUdeviceptr at = range.address + offset;
        if (!ask(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at) ||
            !ask(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at) || at - begin >= bytes)
            return offset == 0;
        offset += begin + bytes - at;
    }
    return true;
}

// For what is about to be copied in parts, of which the driver would not see what it refuses of the whole.
[[gnu::noinline]] inline CUresult host_sides(std::span<const engine::Range> ranges) {
    if (std::ranges::all_of(ranges, [](const engine::Range& range) {
            return range.address == 0 || is_managed(range.address) || locked_throughout(range);
        }))
        return CUDA_SUCCESS;
    const CUresult error = refusal();
    return error == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : error;
}

// How much of its buffer follows an address; 0 where it is not managed.
inline std::uint64_t rest_of_buffer(core::Address address) {
    engine::Session* const session = engine::session_at(address);
    const auto buffer = session ? session->buffer_at(address) : std::nullopt;
    const std::uint64_t offset = buffer ? address - buffer->address : 0;
    return buffer && offset < buffer->bytes ? buffer->bytes - offset : 0;
}

// The most bytes one piece may name of each of the managed operands.
inline std::uint64_t piece_bytes(core::Address a, core::Address b) {
    std::uint64_t piece = UINT64_MAX;
    for (const core::Address address : {a, b}) {
        if (engine::Session* session = engine::session_at(address))
            piece = std::min(piece, session->piece_bytes());
    }
    return piece;
}

// The next part of what is done in parts, with `left` bytes to go: at most `piece`, and it ends where a chunk
// of the destination (or else of the source) does. So no chunk is overwritten by two parts, and no element of
// a memset is cut.
inline std::uint64_t part_bytes(core::Address to, core::Address from, std::uint64_t left,
                                std::uint64_t piece) {
    if (left <= piece) return left;
    const core::Address cut = is_managed(to) ? to : from;
    engine::Session* const session = engine::session_at(cut);
    const auto buffer = session ? session->buffer_at(cut) : std::nullopt;
    const std::uint64_t begun = buffer ? (cut - buffer->address) % session->largest_chunk() : 0;
    return begun < piece ? piece - begun : piece;
}

// What became of a copy or set, once `note` has told reach/pointer_tables.h of it if it was submitted. A
// captured one is noted with its graph.
template <typename Note>
[[gnu::noinline]] CUresult noted(CUresult status, CUstream stream, Note note) {
    if (status != CUDA_SUCCESS || engine::managed_bounds().end == 0) return status;
    guarded([&] {
        if (!engine::capturing(stream)) note();
        return CUDA_SUCCESS;
    });
    return status;
}

// The same of one that brings in nothing new, only what tables have known before: mostly nothing.
template <typename Note>
inline CUresult noted_if_tables(CUresult status, CUstream stream, Note note) {
    return engine::any_tables() ? noted(status, stream, note) : status;
}

// Calls with `ranges` on the device: a captured copy or a new graph node, for the driver looks at what its
// operands are mapped to.
template <typename Call>
CUresult recorded(const std::vector<engine::Range>& ranges, Call&& call) {
    std::vector<engine::PinnedIn> kept;
    CUresult status = engine::pin_resident(ranges, kept);
    if (status == CUDA_SUCCESS) status = call();
    engine::let_go(kept);
    return status;
}

// What a trace tells of a copy; without one nothing is asked. Of two GPUs' memory each would tell it.
inline trace::Copied told_of(core::Address destination, core::Address source, std::uint64_t bytes) {
    if (!trace::writer() || destination == 0 || source == 0) return {};
    if (is_managed(destination) && is_managed(source)) {
        const bool same = engine::session_at(destination) == engine::session_at(source);
        return {same ? trace::CopyWay::OnGpu : trace::CopyWay::Unknown, bytes};
    }
    if (engine::is_host_memory(source)) return {trace::CopyWay::ToGpu, bytes};
    return {engine::is_host_memory(destination) ? trace::CopyWay::ToHost : trace::CopyWay::OnGpu, bytes};
}

// linear() where something may have to move.
template <typename Copy, typename MayStay>
[[gnu::noinline]] CUresult linear_after_look(core::Address destination, core::Address source,
                                             std::uint64_t bytes, CUstream stream, Copy copy,
                                             MayStay may_stay) {
    return guarded([&]() -> CUresult {
        if (!is_managed(destination) && !is_managed(source))
            return engine::call_with_oom_retry([&] { return copy(0, bytes); });
        if (engine::capturing(stream)) {
            return recorded({{source, bytes}, {destination, bytes}}, [&] { return copy(0, bytes); });
        }
        const std::uint64_t piece = piece_bytes(destination, source);
        const bool stay =
            may_stay() && engine::within_reach(destination, bytes) && engine::within_reach(source, bytes);
        if (stay) bring_ahead_while_busy(stream);
        if (stay || piece < bytes) [[unlikely]] {
            const engine::Range sides[] = {{destination, bytes}, {source, bytes}};
            if (const CUresult error = host_sides(sides); error != CUDA_SUCCESS) return error;
        }
        CUresult status = CUDA_SUCCESS;
        std::uint64_t offset = 0;
        do {
            const std::uint64_t n = part_bytes(destination + offset, source + offset, bytes - offset, piece);
            status = engine::submit(
                stream,
                [&] {
                    engine::WorkingSet reach;
                    reach.stream = stream;
                    reach.ranges = {
                        {.address = source + offset, .bytes = n, .may_stay = stay, .only_read = true},
                        {.address = destination + offset, .bytes = n, .overwritten = true, .may_stay = stay}};
                    reach.copied = told_of(destination, source, n);
                    return reach;
                },
                [&](engine::HostCopies copies = {}) {
                    if constexpr (std::is_invocable_v<Copy, std::uint64_t, std::uint64_t, engine::HostCopies>)
                        return copy(offset, n, copies);
                    else
                        return copy(offset, n);
                });
            offset += n;
        } while (status == CUDA_SUCCESS && offset < bytes);
        return status;
    });
}

// Copies `bytes` from `source` to `destination` (either may be any pointer) by `copy(offset, bytes)`: in one
// go where that is possible, else piece by piece, so that a buffer larger than the GPU can be copied. The
// pieces run in order, and the last one's status is the copy's. `may_stay()`: the copy waits for the host
// anyway, so that what is in host memory need not come in; it is only asked where something may have to move.
// Such a copy takes a third argument, the engine::HostCopies, which may be left out where there are none.
template <typename Copy, typename MayStay = bool (*)()>
inline CUresult linear(
    core::Address destination, core::Address source, std::uint64_t bytes, CUstream stream, Copy copy,
    MayStay may_stay = [] { return false; }) {
    const engine::Bounds managed = engine::managed_bounds();
    if (in(managed, destination) || in(managed, source)) {
        const engine::Range ranges[] = {{destination, bytes}, {source, bytes}};
        CUresult status = within_buffers(ranges);
        if (status != CUDA_SUCCESS) return status;
        note_use(ranges, stream);
        if (engine::try_fast_path(
                stream, [=] { return copy(0, bytes); }, status)) [[likely]]
            return status;
    }
    return linear_after_look(destination, source, bytes, stream, copy, may_stay);
}

// Whether work over `ranges` should be done in parts.
inline bool too_large(const std::vector<engine::Range>& ranges) {
    return std::any_of(ranges.begin(), ranges.end(), [](const engine::Range& range) {
        const engine::Session* session = engine::session_at(range.address);
        return session && range.bytes > session->piece_bytes();
    });
}

// Submits work over `ranges`, which must all be there at once. `copied()`: what a trace tells of it.
template <typename Call, typename Copied = trace::Copied (*)()>
CUresult over(
    const std::vector<engine::Range>& ranges, CUstream stream, Call&& call,
    Copied copied = [] { return trace::Copied{}; }) {
    return guarded([&]() -> CUresult {
        if (!any_managed(ranges)) return engine::call_with_oom_retry(call);
        if (engine::capturing(stream)) return recorded(ranges, call);
        note_use(ranges, stream);
        return engine::submit(
            stream,
            [&] {
                engine::WorkingSet reach;
                reach.stream = stream;
                reach.ranges = ranges;
                reach.copied = copied();
                return reach;
            },
            call);
    });
}

// The same for work that cannot use them in place, or reads them out of stream order: they are on the device,
// and filled, before it is submitted.
template <typename Call>
CUresult over_resident(const std::vector<engine::Range>& ranges, CUstream stream, Call&& call) {
    return guarded([&]() -> CUresult {
        if (!any_managed(ranges)) return engine::call_with_oom_retry(call);
        return recorded(ranges, [&] { return over(ranges, stream, call); });
    });
}

}  // namespace lms::entry

#include "shim/entry/ranges.h"

#include <algorithm>
#include <optional>

#include "shim/entry/context_check.h"
#include "shim/trace/writer.h"

namespace lms::entry {
namespace {

bool within_buffer(const session::Range& range) {
    session::Session* session = range.bytes == 0 ? nullptr : session::session_at(range.address);
    return !session || session->holds(range.address, range.bytes);
}

// False where host memory is page-locked at its beginning, and not to its end.
bool locked_throughout(const session::Range& range) {
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

CUresult invalid() {
    const CUresult error = refusal();
    return error == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : error;
}

session::WorkingSet reach_of(Ranges ranges, CUstream stream) {
    session::WorkingSet reach;
    reach.stream = stream;
    reach.ranges.assign(ranges.begin(), ranges.end());
    return reach;
}

}  // namespace

bool any_managed(Ranges ranges) {
    return std::ranges::any_of(ranges, is_managed, &session::Range::address);
}

CUresult within_buffers(Ranges ranges) {
    return std::ranges::all_of(ranges, within_buffer) ? CUDA_SUCCESS : invalid();
}

CUresult host_sides(Ranges ranges) {
    const auto is_whole = [](const session::Range& range) {
        return range.address == 0 || is_managed(range.address) || locked_throughout(range);
    };
    return std::ranges::all_of(ranges, is_whole) ? CUDA_SUCCESS : invalid();
}

std::uint64_t rest_of_buffer(engine::Address address) {
    session::Session* const session = session::session_at(address);
    const auto buffer = session ? session->buffer_at(address) : std::nullopt;
    const std::uint64_t offset = buffer ? address - buffer->address : 0;
    return buffer && offset < buffer->bytes ? buffer->bytes - offset : 0;
}

std::uint64_t piece_bytes(engine::Address a, engine::Address b) {
    std::uint64_t piece = UINT64_MAX;
    for (const engine::Address address : {a, b}) {
        if (session::Session* session = session::session_at(address))
            piece = std::min(piece, session->piece_bytes());
    }
    return piece;
}

std::uint64_t part_bytes(engine::Address to, engine::Address from, std::uint64_t left, std::uint64_t piece) {
    if (left <= piece) return left;
    const engine::Address cut = is_managed(to) ? to : from;
    session::Session* const session = session::session_at(cut);
    const auto buffer = session ? session->buffer_at(cut) : std::nullopt;
    const std::uint64_t begun = buffer ? (cut - buffer->address) % session->largest_chunk() : 0;
    return begun < piece ? piece - begun : piece;
}

bool too_large(Ranges ranges) {
    return std::ranges::any_of(ranges, [](const session::Range& range) {
        const session::Session* session = session::session_at(range.address);
        return session && range.bytes > session->piece_bytes();
    });
}

CUresult noted(CUresult status, CUstream stream, util::FunctionRef<void()> note) {
    if (status != CUDA_SUCCESS || !access::may_be_tables()) return status;
    guarded([&] {
        if (!program::capturing(stream)) note();
        return CUDA_SUCCESS;
    });
    return status;
}

CUresult recorded(Ranges ranges, session::Call call) {
    std::vector<session::PinnedIn> kept;
    CUresult status = session::pin_resident(ranges, kept);
    if (status == CUDA_SUCCESS) status = call();
    session::let_go(kept);
    return status;
}

trace::Copied told_of(engine::Address destination, engine::Address source, std::uint64_t bytes) {
    if (!trace::writer() || destination == 0 || source == 0) return {};
    if (is_managed(destination) && is_managed(source)) {
        const bool same = session::session_at(destination) == session::session_at(source);
        return {same ? trace::CopyWay::OnGpu : trace::CopyWay::Unknown, bytes};
    }
    if (access::is_host_memory(source)) return {trace::CopyWay::ToGpu, bytes};
    return {access::is_host_memory(destination) ? trace::CopyWay::ToHost : trace::CopyWay::OnGpu, bytes};
}

CUresult over(Ranges ranges, CUstream stream, session::Call call) {
    return guarded([&]() -> CUresult {
        if (!any_managed(ranges)) return session::submit_beside_moves(stream, call);
        if (program::capturing(stream)) return recorded(ranges, call);
        note_use(ranges, stream);
        return session::submit(
            stream, [&] { return reach_of(ranges, stream); }, call);
    });
}

CUresult over_in_place(Ranges ranges, CUstream stream, util::FunctionRef<CUresult(session::HostCopies)> copy,
                       util::FunctionRef<trace::Copied()> copied) {
    return guarded([&]() -> CUresult {
        const auto as_it_is = [&] { return copy({}); };
        if (!any_managed(ranges)) return session::submit_beside_moves(stream, as_it_is);
        if (program::capturing(stream)) return recorded(ranges, as_it_is);
        note_use(ranges, stream);
        const auto look = [&] {
            session::WorkingSet reach = reach_of(ranges, stream);
            reach.copied = copied();
            return reach;
        };
        return session::submit_in_place(stream, look, copy);
    });
}

CUresult over_resident(Ranges ranges, CUstream stream, session::Call call) {
    return guarded([&]() -> CUresult {
        if (!any_managed(ranges)) return session::submit_beside_moves(stream, call);
        return recorded(ranges, [&] { return over(ranges, stream, call); });
    });
}

}  // namespace lms::entry

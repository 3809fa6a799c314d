#include "shim/entry/transfer.h"

#include <algorithm>

#include "shim/entry/in_place.h"
#include "shim/entry/ranges.h"
#include "shim/entry/wait.h"
#include "shim/session/program_memory.h"

namespace lms::entry {
namespace {

// Copies are found by their addresses, or by what is called the host's: these can be made in a host copy.
bool is_copy(TransferKind kind) {
    return kind == TransferKind::ByAddress || kind == TransferKind::ToGpu || kind == TransferKind::ToHost ||
           kind == TransferKind::OnGpu;
}

// Whether one side is the host's.
bool with_host(const Transfer& transfer) {
    switch (transfer.kind) {
        case TransferKind::ToGpu:
        case TransferKind::ToHost:
            return true;
        case TransferKind::ByAddress:
            return access::is_host_memory(transfer.to) || access::is_host_memory(transfer.from);
        default:
            return false;
    }
}

Transfer part_of(const Transfer& whole, engine::Address to, engine::Address from, std::uint64_t bytes) {
    Transfer part = whole;
    part.to = to;
    part.from = from;
    part.bytes = bytes;
    return part;
}

Transfer part_at(const Transfer& whole, std::uint64_t offset, std::uint64_t bytes) {
    const auto side = [&](engine::Address begin) { return begin ? begin + offset : 0; };
    Transfer part = part_of(whole, side(whole.to), side(whole.from), bytes);
    part.array_offset += offset;
    return part;
}

// To the GPU that it is for.
CUresult give(const Transfer& transfer) {
    const auto call = [&] { return transfer.call(transfer); };
    if (!several_devices()) return call();
    if (is_copy(transfer.kind))
        return copy_across(transfer.to, transfer.from, transfer.bytes, transfer.stream, transfer.waits, call);
    if (transfer.kind != TransferKind::Set) return call();
    const session::Range range{transfer.to, transfer.bytes};
    return where_it_is({&range, 1}, transfer.stream, transfer.waits, call);
}

// With evicted memory used in these host copies.
CUresult give_in_place(const Transfer& transfer, session::HostCopies copies) {
    const CUresult status = await_earlier(copies, transfer.stream);
    if (status != CUDA_SUCCESS) return status;
    return copy_in_place(transfer.to, transfer.from, transfer.bytes, copies,
                         [&](engine::Address to, engine::Address from, std::uint64_t bytes) {
                             return give(part_of(transfer, to, from, bytes));
                         });
}

CUresult submit_part(const Transfer& part, bool stay) {
    const auto look = [&] {
        session::WorkingSet reach;
        reach.stream = part.stream;
        reach.ranges = {{.address = part.from, .bytes = part.bytes, .may_stay = stay, .only_read = true},
                        {.address = part.to, .bytes = part.bytes, .overwritten = true, .may_stay = stay}};
        reach.copied = told_of(part.to, part.from, part.bytes);
        return reach;
    };
    if (!is_copy(part.kind)) return session::submit(part.stream, look, [&] { return give(part); });
    return session::submit_in_place(part.stream, look, [&](session::HostCopies copies) {
        return copies.empty() ? give(part) : give_in_place(part, copies);
    });
}

CUresult submit_after_look(const Transfer& whole) {
    const engine::Address to = whole.to, from = whole.from;
    const auto give_whole = [&] { return give(whole); };
    if (!is_managed(to) && !is_managed(from)) return session::submit_beside_moves(whole.stream, give_whole);
    const session::Range sides[] = {{from, whole.bytes}, {to, whole.bytes}};
    if (program::capturing(whole.stream)) return recorded(sides, give_whole);
    const std::uint64_t piece = piece_bytes(to, from);
    // It waits for the host anyway, so that what is in host memory need not come in.
    const bool stay = whole.waits && with_host(whole) && session::within_reach(to, whole.bytes) &&
                      session::within_reach(from, whole.bytes);
    if (stay) move_ahead_while_busy(whole.stream);
    if (stay || piece < whole.bytes) {
        if (const CUresult error = host_sides(sides); error != CUDA_SUCCESS) return error;
    }
    CUresult status = CUDA_SUCCESS;
    std::uint64_t offset = 0;
    do {
        const std::uint64_t n = part_bytes(to + offset, from + offset, whole.bytes - offset, piece);
        status = submit_part(part_at(whole, offset, n), stay);
        offset += n;
    } while (status == CUDA_SUCCESS && offset < whole.bytes);
    return status;
}

}  // namespace

CUresult within_buffers(engine::Address to, engine::Address from, std::uint64_t bytes) {
    const session::Range sides[] = {{to, bytes}, {from, bytes}};
    return within_buffers(sides);
}

CUresult submit_with_care(const Transfer& whole) {
    const session::Bounds managed = session::managed_bounds();
    if (several_devices() && (in(managed, whole.to) || in(managed, whole.from))) {
        const session::Range sides[] = {{whole.to, whole.bytes}, {whole.from, whole.bytes}};
        CUresult status = within_buffers(sides);
        if (status != CUDA_SUCCESS) return status;
        note_use(sides, whole.stream);
        if (session::try_fast_path(
                whole.stream, [&] { return give(whole); }, status))
            return status;
    }
    return guarded([&] { return submit_after_look(whole); });
}

CUresult noted(CUresult status, TransferKind kind, engine::Address to, engine::Address from,
               std::uint64_t bytes, CUstream stream) {
    if (status != CUDA_SUCCESS) return status;
    switch (kind) {
        case TransferKind::ToGpu:
            return noted(status, stream, [&] { access::note_upload({to, bytes}, {from, bytes}); });
        case TransferKind::FromArray:
        case TransferKind::Set:
            return noted(status, stream, [&] { access::note_set({to, bytes}); });
        default:
            break;
    }
    if (!in(session::managed_bounds(), from) || (session::bounds_are_mixed() && !is_managed(from)))
        return noted(status, stream, [&] { access::note_transfer({to, bytes}, {from, bytes}); });
    if (!access::any_tables()) return status;
    return noted(status, stream, [&] { access::note_copy({to, bytes}, {from, bytes}); });
}

}  // namespace lms::entry

// A copy or set of linear memory as a value, and the one way that it goes to the driver. Every function of
// cuMemcpy's and cuMemset's makes one, says how the driver takes it, and submits it.
#pragma once

#include <cstdint>

#include "shim/access/pointer_tables.h"
#include "shim/device/cuda_api.h"
#include "shim/entry/cross_device_copy.h"
#include "shim/session/fast_submit.h"

namespace lms::entry {

enum class TransferKind : std::uint8_t {
    ByAddress,    // its sides are what their addresses say
    ToGpu,        // from what the program calls the host's
    ToHost,       // to that
    OnGpu,        // within what it calls the GPU's
    BetweenGpus,  // told by their contexts
    ToArray,      // the other side is an array, which is the driver's
    FromArray,
    Set,
};

struct Transfer {
    TransferKind kind;
    bool waits;            // the host does, for it
    engine::Address to;    // 0: an array
    engine::Address from;  // 0: an array, or none
    std::uint64_t bytes;
    CUstream stream;  // resolved
    CUstream handle;  // as the program gave it

    // What the driver is told beside, of some kinds.
    CUcontext to_context = nullptr;
    CUcontext from_context = nullptr;
    CUarray array = nullptr;
    std::uint64_t array_offset = 0;
    std::uint32_t value = 0;

    // Gives it to the driver, or a part of it: another transfer with other addresses and fewer bytes.
    CUresult (*call)(const Transfer& part) = nullptr;
};

// An error where a side goes on past the end of its buffer.
CUresult within_buffers(engine::Address to, engine::Address from, std::uint64_t bytes);

// What is left of submit() where something may have to move, or nothing is managed, or there are several
// GPUs. In one go where that is possible, else piece by piece, so that a buffer larger than the GPU can be
// copied. The pieces run in order, and the last one's status is the transfer's.
CUresult submit_with_care(const Transfer& whole);

// What became of it, once access/pointer_tables.h has been told if it was submitted.
CUresult noted(CUresult status, TransferKind kind, engine::Address to, engine::Address from,
               std::uint64_t bytes, CUstream stream);

// Whether it may change what is known of tables: mostly not, where it brings in no addresses.
inline bool is_noted(TransferKind kind, engine::Address from) {
    switch (kind) {
        case TransferKind::ToHost:
        case TransferKind::ToArray:
            return false;
        case TransferKind::Set:
            return access::any_tables();
        case TransferKind::ToGpu:
        case TransferKind::FromArray:
            return true;
        default:
            return access::any_tables() || session::bounds_are_mixed() ||
                   !in(session::managed_bounds(), from);
    }
}

// Submits a transfer that the driver takes by `call`, which captures nothing. While everything fits this is
// all, which is why it is compiled into each function.
template <typename Call>
[[gnu::always_inline]] inline CUresult submit(const Transfer& whole, Call call) {
    CUresult status = CUDA_SUCCESS;
    const auto fits = [&] {
        const session::Bounds managed = session::managed_bounds();
        if ((!in(managed, whole.to) && !in(managed, whole.from)) || several_devices()) return false;
        status = within_buffers(whole.to, whole.from, whole.bytes);
        return status != CUDA_SUCCESS || session::try_fast_path(
                                             whole.stream, [&] { return call(whole); }, status);
    };
    if (!fits()) [[unlikely]] {
        Transfer moved = whole;
        moved.call = call;
        status = submit_with_care(moved);
    }
    if (!is_noted(whole.kind, whole.from)) return status;
    return noted(status, whole.kind, whole.to, whole.from, whole.bytes, whole.stream);
}

}  // namespace lms::entry

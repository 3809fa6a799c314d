// Copies that use evicted memory in its host copy, where its address does not lead there: cut where one host
// copy ends and something else begins, each part at the addresses where its bytes are. They lie within their
// buffers (transfer.h): of a copy done in parts the driver would see too late that they do not.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shim/device/driver_table.h"
#include "shim/reach/strided_region.h"
#include "shim/session/submit.h"

namespace lms::entry {

// Where the byte of an address is, and how many from there on are in one piece.
struct Where {
    core::Address address;
    std::uint64_t bytes;
    bool moved;  // not at the address asked for
};

inline Where where_is(core::Address address, engine::HostCopies copies) {
    const auto next =
        std::upper_bound(copies.begin(), copies.end(), address,
                         [](core::Address a, const engine::HostCopy& copy) { return a < copy.address; });
    if (next != copies.begin()) {
        const engine::HostCopy& copy = *(next - 1);
        const std::uint64_t offset = address - copy.address;
        if (offset < copy.bytes) return {copy.host + offset, copy.bytes - offset, true};
    }
    return {address, next == copies.end() ? UINT64_MAX : next->address - address, false};
}

// Copies by `copy(to, from, bytes)`.
template <typename Copy>
CUresult copy_in_place(core::Address to, core::Address from, std::uint64_t bytes, engine::HostCopies copies,
                       Copy copy) {
    if (copies.empty()) return copy(to, from, bytes);
    CUresult status = CUDA_SUCCESS;
    for (std::uint64_t at = 0; at < bytes && status == CUDA_SUCCESS;) {
        const Where target = where_is(to + at, copies);
        const Where source = where_is(from + at, copies);
        const std::uint64_t n = std::min({bytes - at, target.bytes, source.bytes});
        status = copy(target.address, source.address, n);
        at += n;
    }
    return status;
}

// Says what a side leaves open, which depends on how much is copied.
template <typename Copy>
void spell_out(Copy& copy) {
    if (copy.srcPitch == 0) copy.srcPitch = copy.srcXInBytes + copy.WidthInBytes;
    if (copy.dstPitch == 0) copy.dstPitch = copy.dstXInBytes + copy.WidthInBytes;
    if constexpr (requires { copy.Depth; }) {
        if (copy.srcHeight == 0) copy.srcHeight = copy.srcY + copy.Height;
        if (copy.dstHeight == 0) copy.dstHeight = copy.dstY + copy.Height;
    }
}

// Cuts a 2D or 3D copy in two between slices or, within one, between rows; false if it is a single row.
template <typename Copy>
bool halve(const Copy& copy, Copy& first, Copy& second) {
    first = copy;
    spell_out(first);
    second = first;
    if constexpr (requires { copy.Depth; }) {
        if (copy.Depth > 1) {
            first.Depth = copy.Depth / 2;
            second.Depth -= first.Depth;
            second.srcZ += first.Depth;
            second.dstZ += first.Depth;
            return true;
        }
    }
    if (copy.Height <= 1) return false;
    first.Height = copy.Height / 2;
    second.Height -= first.Height;
    second.srcY += first.Height;
    second.dstY += first.Height;
    return true;
}

// The same of a single row, after `bytes`.
template <typename Copy>
void cut_row(const Copy& copy, std::uint64_t bytes, Copy& first, Copy& second) {
    first = copy;
    spell_out(first);
    second = first;
    first.WidthInBytes = bytes;
    second.WidthInBytes -= bytes;
    second.srcXInBytes += bytes;
    second.dstXInBytes += bytes;
}

// A 2D or 3D copy by `real(copy)`.
template <typename Real, typename Copy>
CUresult copy_in_place(Real real, const Copy& copy, engine::HostCopies copies) {
    if (copies.empty()) return real(&copy);
    const engine::Range to = engine::span_of(engine::destination_of(copy));
    const engine::Range from = engine::span_of(engine::source_of(copy));
    const Where target = where_is(to.address, copies);
    const Where source = where_is(from.address, copies);
    if (to.bytes <= target.bytes && from.bytes <= source.bytes) {
        Copy part = copy;
        if (target.moved) {
            part.dstMemoryType = CU_MEMORYTYPE_HOST;
            part.dstHost =
                reinterpret_cast<void*>(engine::base_of(copy.dstMemoryType, copy.dstDevice, copy.dstHost) +
                                        (target.address - to.address));
        }
        if (source.moved) {
            part.srcMemoryType = CU_MEMORYTYPE_HOST;
            part.srcHost = reinterpret_cast<const void*>(
                engine::base_of(copy.srcMemoryType, copy.srcDevice, copy.srcHost) +
                (source.address - from.address));
        }
        return real(&part);
    }
    Copy first;
    Copy second;
    if (!halve(copy, first, second)) cut_row(copy, std::min(target.bytes, source.bytes), first, second);
    const CUresult status = copy_in_place(real, first, copies);
    return status == CUDA_SUCCESS ? copy_in_place(real, second, copies) : status;
}

}  // namespace lms::entry

#include "shim/entry/box_copy.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "shim/access/strided_region.h"
#include "shim/entry/in_place.h"
#include "shim/entry/ranges.h"
#include "shim/session/program_memory.h"

namespace lms::entry {
namespace {

using access::destination_of;
using access::source_of;
using session::Range;

static_assert(offsetof(CUDA_MEMCPY3D, reserved0) == offsetof(Box, srcContext) &&
              offsetof(CUDA_MEMCPY3D, reserved1) == offsetof(Box, dstContext) &&
              offsetof(CUDA_MEMCPY3D, Depth) == offsetof(Box, Depth));

// What a 2D copy has, of either descriptor.
template <typename To, typename From>
void take_flat(To& to, const From& from) {
    to.srcXInBytes = from.srcXInBytes;
    to.srcY = from.srcY;
    to.srcMemoryType = from.srcMemoryType;
    to.srcHost = from.srcHost;
    to.srcDevice = from.srcDevice;
    to.srcArray = from.srcArray;
    to.srcPitch = from.srcPitch;
    to.dstXInBytes = from.dstXInBytes;
    to.dstY = from.dstY;
    to.dstMemoryType = from.dstMemoryType;
    to.dstHost = from.dstHost;
    to.dstDevice = from.dstDevice;
    to.dstArray = from.dstArray;
    to.dstPitch = from.dstPitch;
    to.WidthInBytes = from.WidthInBytes;
    to.Height = from.Height;
}

Range from_of(const Box& box) {
    return access::span_of(source_of(box));
}
Range to_of(const Box& box) {
    return access::span_of(destination_of(box));
}

using BoxSides = std::array<Range, 2>;  // source and destination
BoxSides box_sides(const Box& box) {
    return {from_of(box), to_of(box)};
}

struct Halves {
    Box first;
    Box second;
};

// Both the whole, with what its sides leave open said, which depends on how much is copied.
Halves spelt_out(Box box) {
    if (box.srcPitch == 0) box.srcPitch = box.srcXInBytes + box.WidthInBytes;
    if (box.dstPitch == 0) box.dstPitch = box.dstXInBytes + box.WidthInBytes;
    if (box.srcHeight == 0) box.srcHeight = box.srcY + box.Height;
    if (box.dstHeight == 0) box.dstHeight = box.dstY + box.Height;
    return {box, box};
}

// Cut between slices or, within one, between rows; a single row after so many bytes.
Halves cut(const Box& box, std::uint64_t row_bytes) {
    Halves halves = spelt_out(box);
    auto& [first, second] = halves;
    if (box.Depth > 1) {
        first.Depth = box.Depth / 2;
        second.Depth -= first.Depth;
        second.srcZ += first.Depth;
        second.dstZ += first.Depth;
    } else if (box.Height > 1) {
        first.Height = box.Height / 2;
        second.Height -= first.Height;
        second.srcY += first.Height;
        second.dstY += first.Height;
    } else {
        first.WidthInBytes = row_bytes;
        second.WidthInBytes -= row_bytes;
        second.srcXInBytes += row_bytes;
        second.dstXInBytes += row_bytes;
    }
    return halves;
}

BoxCopy part_of(const BoxCopy& copy, const Box& box) {
    BoxCopy part = copy;
    part.box = box;
    return part;
}

CUresult give_in_place(const BoxCopy& copy, session::HostCopies copies) {
    if (copies.empty()) return copy.call(copy);
    const Box& box = copy.box;
    const Range to = to_of(box);
    const Range from = from_of(box);
    const Where target = where_is(to.address, copies);
    const Where source = where_is(from.address, copies);
    if (to.bytes <= target.bytes && from.bytes <= source.bytes) {
        BoxCopy part = copy;
        if (target.moved) {
            part.box.dstMemoryType = CU_MEMORYTYPE_HOST;
            part.box.dstHost =
                reinterpret_cast<void*>(access::base_of(box.dstMemoryType, box.dstDevice, box.dstHost) +
                                        (target.address - to.address));
        }
        if (source.moved) {
            part.box.srcMemoryType = CU_MEMORYTYPE_HOST;
            part.box.srcHost =
                reinterpret_cast<const void*>(access::base_of(box.srcMemoryType, box.srcDevice, box.srcHost) +
                                              (source.address - from.address));
        }
        return part.call(part);
    }
    const auto [first, second] = cut(box, std::min(target.bytes, source.bytes));
    const CUresult status = give_in_place(part_of(copy, first), copies);
    return status == CUDA_SUCCESS ? give_in_place(part_of(copy, second), copies) : status;
}

// Halves it until the parts are small enough to be there at once.
CUresult submit_parts(const BoxCopy& copy, const BoxSides& sides) {
    const Box& box = copy.box;
    Range source = sides[0];
    Range destination = sides[1];
    const auto give = [&](session::HostCopies copies) {
        const CUresult status = await_earlier(copies, copy.stream);
        if (status != CUDA_SUCCESS) return status;
        return where_it_is(sides, copy.stream, copy.waits, [&] { return give_in_place(copy, copies); });
    };
    CUresult status = CUDA_SUCCESS;
    note_use(sides, copy.stream);
    const auto at_once = [&] { return several_devices() ? give({}) : copy.call(copy); };
    if (session::try_fast_path(copy.stream, at_once, status)) return status;
    source.only_read = true;
    if (copy.waits && (box.srcMemoryType == CU_MEMORYTYPE_HOST || box.dstMemoryType == CU_MEMORYTYPE_HOST)) {
        source.may_stay = destination.may_stay =
            session::within_reach(source.address, source.bytes) &&
            session::within_reach(destination.address, destination.bytes);
    }
    const bool whole = program::capturing(copy.stream) || !too_large(sides);
    if (source.may_stay || !whole) {
        if (const CUresult error = host_sides(sides); error != CUDA_SUCCESS) return error;
    }
    if (whole) {
        const Range ranges[] = {source, destination};
        return over_in_place(ranges, copy.stream, give, [&] {
            return told_of(destination.address, source.address, bytes_of(source_of(box)));
        });
    }
    constexpr std::size_t kLargestElement = 16;  // an element of any array begins at a multiple
    const auto [first, second] = cut(box, box.WidthInBytes / 2 / kLargestElement * kLargestElement);
    status = submit_parts(part_of(copy, first), box_sides(first));
    return status == CUDA_SUCCESS ? submit_parts(part_of(copy, second), box_sides(second)) : status;
}

}  // namespace

Box box_from(const CUDA_MEMCPY2D& copy) {
    Box box{};
    take_flat(box, copy);
    box.Depth = 1;
    return box;
}

void take(CUDA_MEMCPY3D_PEER& copy, const Box& box) {
    copy = box;
}
void take(CUDA_MEMCPY3D& copy, const Box& box) {
    copy = std::bit_cast<CUDA_MEMCPY3D>(box);
}
void take(CUDA_MEMCPY2D& copy, const Box& box) {
    take_flat(copy, box);
}

CUresult submit(const BoxCopy& copy) {
    const BoxSides sides = box_sides(copy.box);
    if (const CUresult error = within_buffers(sides); error != CUDA_SUCCESS) return error;
    return noted(submit_parts(copy, sides), copy.stream, [&] {
        const Box& box = copy.box;
        if (box.dstMemoryType != CU_MEMORYTYPE_HOST)
            access::note_typed(destination_of(box), source_of(box), box.srcMemoryType);
    });
}

}  // namespace lms::entry

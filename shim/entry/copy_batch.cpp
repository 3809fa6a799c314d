// Batches of copies, and single ones with attributes. One that is too large to be on the GPU at once is
// submitted in parts, in order.
#include <array>
#include <optional>

#include "shim/access/array_formats.h"
#include "shim/entry/batch.h"
#include "shim/entry/forms.h"
#include "shim/entry/ranges.h"

namespace lms::entry {
namespace {

using access::StridedRegion;
using device::driver;
using session::Range;

// Whether sources are read in stream order only.
template <typename Copy>
bool reads_in_order(const Copy& copy) {
    return copy.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
}

CUresult copy_over(Ranges ranges, bool in_order, CUstream stream, session::Call call) {
    return in_order ? over(ranges, stream, call) : over_resident(ranges, stream, call);
}

// within_buffers() of copies whose two sides follow one another. `failed`, which may be null, is told the
// copy at fault.
CUresult each_within_buffers(std::span<const Range> sides, std::size_t* failed) {
    for (std::size_t i = 0; i < sides.size() / 2; ++i) {
        const CUresult error = within_buffers(sides.subspan(2 * i, 2));
        if (error == CUDA_SUCCESS) continue;
        if (failed) *failed = i;
        return error;
    }
    return CUDA_SUCCESS;
}

// A batch as the program hands it in, or a part of it.
struct Batch {
    CUdeviceptr* to;
    CUdeviceptr* from;
    std::size_t* bytes;
    std::size_t count;
    Runs<CUmemcpyAttributes> runs;
};
using BatchCall = util::FunctionRef<CUresult(const Batch&)>;

// A linear copy of a batch, or a piece of one.
struct Copy {
    CUdeviceptr to;
    CUdeviceptr from;
    std::size_t bytes;
    std::size_t index;  // in the program's batch
};

// A part of the program's batch, as the driver takes it.
class Part {
  public:
    Part(std::span<const Copy> copies, const Runs<CUmemcpyAttributes>& whole) {
        for (const Copy& copy : copies) {
            to.push_back(copy.to);
            from.push_back(copy.from);
            bytes.push_back(copy.bytes);
            runs_.add(whole, copy.index);
        }
    }
    Runs<CUmemcpyAttributes> runs() { return runs_.get(); }

    std::vector<CUdeviceptr> to;
    std::vector<CUdeviceptr> from;
    std::vector<std::size_t> bytes;

  private:
    SomeRuns<CUmemcpyAttributes> runs_;
};

// The copies cut to pieces that can each be on the GPU; a captured one stays whole.
std::vector<Copy> cut(const Batch& batch, CUstream stream) {
    std::vector<Copy> copies;
    const bool whole = program::capturing(stream);
    for (std::size_t i = 0; i < batch.count; ++i) {
        const CUdeviceptr to = batch.to[i], from = batch.from[i];
        const std::size_t bytes = batch.bytes[i];
        const std::uint64_t piece = whole ? UINT64_MAX : piece_bytes(to, from);
        std::size_t at = 0;
        do {
            const std::size_t n = part_bytes(to + at, from + at, bytes - at, piece);
            copies.push_back({to + at, from + at, n, i});
            at += n;
        } while (at < bytes);
    }
    return copies;
}

// How many of `copies` can be on the GPU together; at least one.
std::size_t together(std::span<const Copy> copies) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < copies.size(); ++i) {
        const std::uint64_t piece = piece_bytes(copies[i].to, copies[i].from);
        if (piece == UINT64_MAX) continue;
        sum += copies[i].bytes;
        if (sum > piece && i > 0) return i;
    }
    return copies.size();
}

// Submits a batch by `real`, in parts if need be. `failed`, which may be null, is told the operation at
// fault.
CUresult copy_batch(const Batch& batch, std::size_t* failed, CUstream stream, BatchCall real) {
    const auto pass = [&] { return real(batch); };
    return guarded([&]() -> CUresult {
        if (session::sessions().empty() || !batch.to || !batch.from || !batch.bytes ||
            !batch.runs.valid_for(batch.count))
            return pass();
        std::vector<Range> sides;
        for (std::size_t i = 0; i < batch.count; ++i) {
            sides.push_back({batch.from[i], batch.bytes[i]});
            sides.push_back({batch.to[i], batch.bytes[i]});
        }
        CUresult status = each_within_buffers(sides, failed);
        note_use(sides, stream);
        if (status != CUDA_SUCCESS || session::try_fast_path(stream, pass, status)) return status;
        const bool in_order = std::all_of(batch.runs.attributes, batch.runs.attributes + batch.runs.count,
                                          reads_in_order<CUmemcpyAttributes>);
        const std::vector<Copy> copies = cut(batch, stream);
        for (std::span<const Copy> left = copies; !left.empty();) {
            const std::span<const Copy> some = left.first(together(left));
            left = left.subspan(some.size());
            std::vector<Range> ranges;
            for (const Copy& copy : some) {
                ranges.push_back({.address = copy.from, .bytes = copy.bytes, .only_read = true});
                ranges.push_back({copy.to, copy.bytes, true});
            }
            Part part(some, batch.runs);
            const Batch now{part.to.data(), part.from.data(), part.bytes.data(), some.size(), part.runs()};
            status = copy_over(ranges, in_order, stream, [&] { return real(now); });
            if (status == CUDA_SUCCESS) continue;
            if (failed && *failed < some.size()) *failed = some[*failed].index;
            return status;
        }
        return status;
    });
}

CUresult copy_batch_noted(const Batch& batch, std::size_t* failed, CUstream stream, BatchCall real) {
    return noted(copy_batch(batch, failed, stream, real), stream, [&] {
        for (std::size_t i = 0; i < batch.count; ++i) {
            access::note_transfer({batch.to[i], batch.bytes[i]}, {batch.from[i], batch.bytes[i]});
        }
    });
}

// Bytes of the elements of a side, as far as they are told.
std::optional<std::size_t> element_of(const CUmemcpy3DOperand& side) {
    if (side.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return 1;
    CUDA_ARRAY3D_DESCRIPTOR array{};
    if (driver().cuArray3DGetDescriptor_v2(&array, side.op.array.array) != CUDA_SUCCESS) return std::nullopt;
    return access::element_bytes(array.Format, array.NumChannels);
}

// Of elements of unknown size it may be the rest of a buffer.
StridedRegion side_of(const CUmemcpy3DOperand& side, const CUextent3D& extent, std::size_t element) {
    if (side.type != CU_MEMCPY_OPERAND_TYPE_POINTER || extent.width == 0 || extent.height == 0 ||
        extent.depth == 0)
        return {0, 0};
    if (element == 0) return {side.op.ptr.ptr, rest_of_buffer(side.op.ptr.ptr)};
    const std::size_t pitch = (side.op.ptr.rowLength ? side.op.ptr.rowLength : extent.width) * element;
    const std::size_t rows = side.op.ptr.layerHeight ? side.op.ptr.layerHeight : extent.height;
    return {side.op.ptr.ptr, extent.width * element, pitch, extent.height, rows * pitch, extent.depth};
}

struct Sides {
    StridedRegion from;
    StridedRegion to;
};

// Bytes of a copy's elements; 0 where they are not told.
std::size_t element_of(const CUDA_MEMCPY3D_BATCH_OP& copy) {
    const auto from = element_of(copy.src);
    const auto to = element_of(copy.dst);
    return from && to ? std::max(*from, *to) : 0;
}

Sides sides_of(const CUDA_MEMCPY3D_BATCH_OP& copy) {
    const std::size_t element = element_of(copy);
    return {side_of(copy.src, copy.extent, element), side_of(copy.dst, copy.extent, element)};
}

// Has a side, whose pitches are told, begin so many elements, rows and slices further on.
void advance(CUmemcpy3DOperand& side, std::size_t element, std::size_t x, std::size_t y, std::size_t z) {
    if (side.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        CUoffset3D& offset = side.op.array.offset;
        offset = {offset.x + x, offset.y + y, offset.z + z};
    } else {
        const std::size_t rows = z * side.op.ptr.layerHeight + y;
        side.op.ptr.ptr += (rows * side.op.ptr.rowLength + x) * element;
    }
}

// The two halves of a copy: between slices, between rows, or within its only row.
std::array<CUDA_MEMCPY3D_BATCH_OP, 2> halves(CUDA_MEMCPY3D_BATCH_OP copy, std::size_t element) {
    for (CUmemcpy3DOperand* const side : {&copy.src, &copy.dst}) {
        if (side->type != CU_MEMCPY_OPERAND_TYPE_POINTER) continue;
        if (side->op.ptr.rowLength == 0) side->op.ptr.rowLength = copy.extent.width;
        if (side->op.ptr.layerHeight == 0) side->op.ptr.layerHeight = copy.extent.height;
    }
    std::size_t CUextent3D::*const cut = copy.extent.depth > 1    ? &CUextent3D::depth
                                         : copy.extent.height > 1 ? &CUextent3D::height
                                                                  : &CUextent3D::width;
    const std::size_t half = copy.extent.*cut / 2;
    std::array<CUDA_MEMCPY3D_BATCH_OP, 2> two{copy, copy};
    two[0].extent.*cut = half;
    two[1].extent.*cut -= half;
    CUextent3D by{};
    by.*cut = half;
    for (CUmemcpy3DOperand* const side : {&two[1].src, &two[1].dst})
        advance(*side, element, by.width, by.height, by.depth);
    return two;
}

// Gives the driver so many copies.
using BoxesCall = util::FunctionRef<CUresult(CUDA_MEMCPY3D_BATCH_OP* first, std::size_t count)>;

// One of a batch, in parts where it is too large.
CUresult copy_3d(CUDA_MEMCPY3D_BATCH_OP copy, CUstream stream, BoxesCall real) {
    const Sides sides = sides_of(copy);
    std::vector<Range> ranges{span_of(sides.from), span_of(sides.to)};
    const std::size_t element = too_large(ranges) ? element_of(copy) : 0;
    if (element == 0) {
        ranges[0].only_read = true;
        return copy_over(ranges, reads_in_order(copy), stream, [&] { return real(&copy, 1); });
    }
    for (const CUDA_MEMCPY3D_BATCH_OP& half : halves(copy, element)) {
        const CUresult status = copy_3d(half, stream, real);
        if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
}

// Submits a batch of 3D copies by `real`, one by one if they are too large together.
CUresult copy_batch_3d(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t* failed,
                       CUstream stream, BoxesCall real) {
    const auto pass = [&] { return real(copies, count); };
    std::vector<Sides> sides;
    const CUresult result = guarded([&]() -> CUresult {
        if (session::sessions().empty() || !copies) return pass();
        const bool in_order = std::all_of(copies, copies + count, reads_in_order<CUDA_MEMCPY3D_BATCH_OP>);
        for (std::size_t i = 0; i < count; ++i) sides.push_back(sides_of(copies[i]));
        std::vector<Range> ranges;
        std::uint64_t sum = 0;
        std::uint64_t piece = UINT64_MAX;
        for (const Sides& each : sides) {
            ranges.push_back(span_of(each.from));
            ranges.back().only_read = true;
            ranges.push_back(span_of(each.to));
            sum += span_of(each.from).bytes + span_of(each.to).bytes;
            piece = std::min(piece, piece_bytes(each.from.begin, each.to.begin));
        }
        const CUresult error = each_within_buffers(ranges, failed);
        if (error != CUDA_SUCCESS) return error;
        if (sum <= piece || program::capturing(stream)) return copy_over(ranges, in_order, stream, pass);
        for (std::size_t i = 0; i < count; ++i) {
            const CUresult status = copy_3d(copies[i], stream, real);
            if (status == CUDA_SUCCESS) continue;
            if (failed && *failed == 0) *failed = i;
            return status;
        }
        return CUDA_SUCCESS;
    });
    return noted(result, stream, [&] {
        for (const Sides& each : sides) {
            if (each.from.width != 0 && each.to.width != 0) access::note_transfer(each.to, each.from);
        }
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;

// The first version of each tells which operation failed.
LMS_FORMS(cuMemcpyBatchAsync, _ptsz,
          (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attrs,
           size_t* attrsIdxs, size_t numAttrs, size_t* failIdx, CUstream hStream),
          return copy_batch_noted({dsts, srcs, sizes, count, {attrs, attrsIdxs, numAttrs}}, failIdx,
                                  Form::stream(hStream), [&](const Batch& part) {
                                      return Form::real(part.to, part.from, part.bytes, part.count,
                                                        part.runs.attributes, part.runs.starts,
                                                        part.runs.count, failIdx, hStream);
                                  });)

LMS_FORMS(cuMemcpyBatchAsync_v2, _ptsz,
          (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attrs,
           size_t* attrsIdxs, size_t numAttrs, CUstream hStream),
          return copy_batch_noted({dsts, srcs, sizes, count, {attrs, attrsIdxs, numAttrs}}, nullptr,
                                  Form::stream(hStream), [&](const Batch& part) {
                                      return Form::real(part.to, part.from, part.bytes, part.count,
                                                        part.runs.attributes, part.runs.starts,
                                                        part.runs.count, hStream);
                                  });)

LMS_FORMS(cuMemcpy3DBatchAsync, _ptsz,
          (size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx, unsigned long long flags,
           CUstream hStream),
          return copy_batch_3d(numOps, opList, failIdx, Form::stream(hStream),
                               [&](CUDA_MEMCPY3D_BATCH_OP* first, std::size_t count) {
                                   return Form::real(count, first, failIdx, flags, hStream);
                               });)

LMS_FORMS(cuMemcpy3DBatchAsync_v2, _ptsz,
          (size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags, CUstream hStream),
          return copy_batch_3d(numOps, opList, nullptr, Form::stream(hStream),
                               [&](CUDA_MEMCPY3D_BATCH_OP* first, std::size_t count) {
                                   return Form::real(count, first, flags, hStream);
                               });)

// The forms of one copy with attributes: a batch of one, which the driver also takes in captured streams.
LMS_FORMS(cuMemcpyWithAttributesAsync, _ptsz,
          (CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes* attr, CUstream hStream),
          std::size_t first = 0;
          return copy_batch_noted({&dst, &src, &size, 1, {attr, &first, 1}}, nullptr, Form::stream(hStream),
                                  [&](const Batch& part) {
                                      CUresult status = CUDA_SUCCESS;
                                      for (std::size_t i = 0; i < part.count && status == CUDA_SUCCESS; ++i)
                                          status = Form::real(part.to[i], part.from[i], part.bytes[i], attr,
                                                              hStream);
                                      return status;
                                  });)

LMS_FORMS(cuMemcpy3DWithAttributesAsync, _ptsz,
          (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream hStream),
          return copy_batch_3d(1, op, nullptr, Form::stream(hStream),
                               [&](CUDA_MEMCPY3D_BATCH_OP* copy, std::size_t) {
                                   return Form::real(copy, flags, hStream);
                               });)

// cuMemcpy3DBatchAsync: many copies of boxes in one call, in the order given.
#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/array.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

// One side of a copy in the terms of cuMemcpy3D, whose source and destination fields these name.
struct BatchSide {
    std::size_t &x, &y, &z;
    CUmemorytype& type;
    CUdeviceptr& device;
    CUarray& array;
    std::size_t &pitch, &height;
};

std::size_t element_bytes(const CUmemcpy3DOperand& operand) {
    return operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? checked_array(operand.op.array.array)->element_bytes
                                                        : 0;
}

void describe(const BatchSide& side, const CUmemcpy3DOperand& operand, const CUextent3D& extent,
              std::size_t element) {
    if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        side.type = CU_MEMORYTYPE_ARRAY;
        side.array = operand.op.array.array;
        side.x = operand.op.array.offset.x * element;
        side.y = operand.op.array.offset.y;
        side.z = operand.op.array.offset.z;
        return;
    }
    require(operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER, CUDA_ERROR_INVALID_VALUE);
    const auto& pointer = operand.op.ptr;
    require((pointer.rowLength == 0 || pointer.rowLength >= extent.width) &&
                (pointer.layerHeight == 0 || pointer.layerHeight >= extent.height),
            CUDA_ERROR_INVALID_VALUE);
    side.type = CU_MEMORYTYPE_UNIFIED;
    side.device = pointer.ptr;
    side.pitch = (pointer.rowLength != 0 ? pointer.rowLength : extent.width) * element;
    side.height = pointer.layerHeight != 0 ? pointer.layerHeight : extent.height;
}

CopyOp box_copy(const Context& context, const CUDA_MEMCPY3D_BATCH_OP& op) {
    require(op.extent.width != 0 && op.extent.height != 0 && op.extent.depth != 0, CUDA_ERROR_INVALID_VALUE);
    require(op.srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
                op.srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
            CUDA_ERROR_INVALID_VALUE);
    require((op.flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0,
            CUDA_ERROR_INVALID_VALUE);
    const std::size_t from = element_bytes(op.src), to = element_bytes(op.dst);
    const std::size_t element = std::max({from, to, std::size_t{1}});
    CUDA_MEMCPY3D copy{};
    describe({copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcMemoryType, copy.srcDevice, copy.srcArray,
              copy.srcPitch, copy.srcHeight},
             op.src, op.extent, element);
    describe({copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstMemoryType, copy.dstDevice, copy.dstArray,
              copy.dstPitch, copy.dstHeight},
             op.dst, op.extent, element);
    copy.WidthInBytes = op.extent.width * element;
    copy.Height = op.extent.height;
    copy.Depth = op.extent.depth;
    return pitched_copy(context, copy);
}

// `failed` is told which copy was at fault, or SIZE_MAX if it was none of them.
CUresult copy_batch(Site site, std::size_t count, const CUDA_MEMCPY3D_BATCH_OP* ops, std::size_t* failed,
                    unsigned long long flags, CUstream handle) {
    return call(site.entry, [&](Context& context) {
        if (failed != nullptr) *failed = SIZE_MAX;
        require(ops != nullptr && count != 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve(context, handle, site.per_thread);
        require(stream->kind != Stream::Kind::Legacy, CUDA_ERROR_INVALID_HANDLE);
        // As a batch of linear copies is; nobody was seen to ask.
        require(stream->capture == nullptr, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        std::vector<CopyOp> copies;  // all checked before the first is given away
        for (std::size_t i = 0; i < count; ++i) {
            if (failed != nullptr) *failed = i;
            copies.push_back(box_copy(context, ops[i]));
            if (ops[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
                stage_host_source(copies.back());
        }
        if (failed != nullptr) *failed = SIZE_MAX;
        for (CopyOp& copy : copies) {
            const CUresult result = copy_async(context, *stream, std::move(copy));
            if (result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_STREAM_API(cuMemcpy3DBatchAsync, _ptsz,
                   (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, std::size_t* failed,
                    unsigned long long flags, CUstream stream),
                   (count, ops, failed, flags, stream)) {
    return copy_batch(site, count, ops, failed, flags, stream);
}

SIMCUDA_STREAM_API(cuMemcpy3DBatchAsync_v2, _ptsz,
                   (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, unsigned long long flags,
                    CUstream stream),
                   (count, ops, flags, stream)) {
    return copy_batch(site, count, ops, nullptr, flags, stream);
}

}  // namespace simcuda::driver

// cuStreamWaitValue, cuStreamWriteValue and their batches.
#include "tools/simcuda/driver/stream_value.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

constexpr unsigned kConditions = 0x3;

ValueOp value_op(const Context& context, bool wait, CUdeviceptr address, std::uint64_t value, unsigned bytes,
                 unsigned flags) {
    const unsigned known = wait ? kConditions : unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER};
    require(address % bytes == 0, CUDA_ERROR_INVALID_VALUE);
    const unsigned flush = wait ? unsigned{CU_STREAM_WAIT_VALUE_FLUSH} : 0;
    require((flags & ~(known | flush)) == 0, CUDA_ERROR_INVALID_VALUE);
    // Flushing remote writes needs a device that has CAN_FLUSH_REMOTE_WRITES.
    require((flags & flush) == 0, CUDA_ERROR_NOT_SUPPORTED);
    device_end(context, address, bytes);
    return {wait, address, value, bytes, flags & kConditions};
}

CUresult one(Site site, CUstream handle, bool wait, CUdeviceptr address, std::uint64_t value, unsigned bytes,
             unsigned flags) {
    return call(site.entry, [&] {
        const auto stream = resolve_anywhere(handle, site.per_thread);
        submit(*stream, value_op(stream->context, wait, address, value, bytes, flags));
        return CUDA_SUCCESS;
    });
}

Op op_of(const Context& context, const CUstreamBatchMemOpParams& item) {
    switch (item.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            return value_op(context, true, item.waitValue.address, item.waitValue.value, 4,
                            item.waitValue.flags);
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            return value_op(context, true, item.waitValue.address, item.waitValue.value64, 8,
                            item.waitValue.flags);
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            return value_op(context, false, item.writeValue.address, item.writeValue.value, 4,
                            item.writeValue.flags);
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            return value_op(context, false, item.writeValue.address, item.writeValue.value64, 8,
                            item.writeValue.flags);
        case CU_STREAM_MEM_OP_BARRIER:
            return MarkerOp{};
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

}  // namespace

std::vector<Op> value_ops(const Context& context, std::span<const CUstreamBatchMemOpParams> items) {
    // cuda.h, cuStreamBatchMemOp: "Must be less than 256."
    require(items.size() < 256, CUDA_ERROR_INVALID_VALUE);
    std::vector<Op> ops;
    for (const CUstreamBatchMemOpParams& item : items) ops.push_back(op_of(context, item));
    return ops;
}

CUstreamBatchMemOpParams batch_item(const ValueOp& op) {
    CUstreamBatchMemOpParams item{};
    if (op.wait) {
        item.waitValue.operation =
            op.bytes == 4 ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_64;
        item.waitValue.address = op.address;
        item.waitValue.value64 = op.value;
        item.waitValue.flags = op.condition;
    } else {
        item.writeValue.operation =
            op.bytes == 4 ? CU_STREAM_MEM_OP_WRITE_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_64;
        item.writeValue.address = op.address;
        item.writeValue.value64 = op.value;
    }
    return item;
}

namespace {

CUresult batch(Site site, CUstream handle, unsigned count, const CUstreamBatchMemOpParams* items,
               unsigned flags) {
    return call(site.entry, [&] {
        require(items != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve_anywhere(handle, site.per_thread);
        std::vector<Op> ops = value_ops(stream->context, {items, count});
        for (Op& op : ops) submit(*stream, std::move(op));
        return CUDA_SUCCESS;
    });
}

}  // namespace

#define SIMCUDA_VALUE_API(symbol, word, wait, bytes)                                                      \
    SIMCUDA_STREAM_API(symbol, _ptsz, (CUstream stream, CUdeviceptr address, word value, unsigned flags), \
                       (stream, address, value, flags)) {                                                 \
        return one(site, stream, wait, address, value, bytes, flags);                                     \
    }

SIMCUDA_VALUE_API(cuStreamWaitValue32, cuuint32_t, true, 4)
SIMCUDA_VALUE_API(cuStreamWaitValue32_v2, cuuint32_t, true, 4)
SIMCUDA_VALUE_API(cuStreamWaitValue64, cuuint64_t, true, 8)
SIMCUDA_VALUE_API(cuStreamWaitValue64_v2, cuuint64_t, true, 8)
SIMCUDA_VALUE_API(cuStreamWriteValue32, cuuint32_t, false, 4)
SIMCUDA_VALUE_API(cuStreamWriteValue32_v2, cuuint32_t, false, 4)
SIMCUDA_VALUE_API(cuStreamWriteValue64, cuuint64_t, false, 8)
SIMCUDA_VALUE_API(cuStreamWriteValue64_v2, cuuint64_t, false, 8)

SIMCUDA_STREAM_API(cuStreamBatchMemOp, _ptsz,
                   (CUstream stream, unsigned count, CUstreamBatchMemOpParams* items, unsigned flags),
                   (stream, count, items, flags)) {
    return batch(site, stream, count, items, flags);
}

SIMCUDA_STREAM_API(cuStreamBatchMemOp_v2, _ptsz,
                   (CUstream stream, unsigned count, CUstreamBatchMemOpParams* items, unsigned flags),
                   (stream, count, items, flags)) {
    return batch(site, stream, count, items, flags);
}

}  // namespace simcuda::driver

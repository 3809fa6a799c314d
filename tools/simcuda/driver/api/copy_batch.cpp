// cuMemcpyBatchAsync: many copies in one call. Here they run in the order given, which the call leaves open.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

struct Batch {
    CUdeviceptr* to;
    CUdeviceptr* from;
    std::size_t* bytes;
    std::size_t count;
    CUmemcpyAttributes* attributes;
    std::size_t* attribute_starts;  // attribute i is for the copies from here to the next one's start
    std::size_t attribute_count;
};

void check(const Batch& batch) {
    require(batch.to != nullptr && batch.from != nullptr && batch.bytes != nullptr && batch.count != 0,
            CUDA_ERROR_INVALID_VALUE);
    require(batch.attributes != nullptr && batch.attribute_starts != nullptr && batch.attribute_count != 0 &&
                batch.attribute_count <= batch.count && batch.attribute_starts[0] == 0,
            CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < batch.attribute_count; ++i) {
        const CUmemcpySrcAccessOrder order = batch.attributes[i].srcAccessOrder;
        require(order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
                CUDA_ERROR_INVALID_VALUE);
        require(i == 0 || batch.attribute_starts[i] > batch.attribute_starts[i - 1],
                CUDA_ERROR_INVALID_VALUE);
    }
}

// `failed` is told which copy was at fault, or SIZE_MAX if it was none of them.
CUresult copy_batch(Site site, const Batch& batch, std::size_t* failed, CUstream handle) {
    return call(site.entry, [&](Context& context) {
        if (failed != nullptr) *failed = SIZE_MAX;
        check(batch);
        const auto stream = resolve(context, handle, site.per_thread);
        require(stream->kind != Stream::Kind::Legacy, CUDA_ERROR_INVALID_HANDLE);
        // The capture goes on: https://github.com/rapidsai/rmm/issues/2518.
        require(stream->capture == nullptr, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        std::vector<CopyOp> copies;  // all checked before the first is given away
        for (std::size_t i = 0; i < batch.count; ++i) {
            if (failed != nullptr) *failed = i;
            const std::size_t bytes = batch.bytes[i];
            require(bytes != 0, CUDA_ERROR_INVALID_VALUE);
            copies.push_back(linear_copy(any_end(context, batch.to[i], bytes),
                                         any_end(context, batch.from[i], bytes), bytes));
        }
        if (failed != nullptr) *failed = SIZE_MAX;
        std::size_t attribute = 0;
        for (std::size_t i = 0; i < batch.count; ++i) {
            while (attribute + 1 < batch.attribute_count && batch.attribute_starts[attribute + 1] <= i)
                ++attribute;
            if (batch.attributes[attribute].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
                stage_host_source(copies[i]);
            }
            const CUresult result = copy_async(context, *stream, std::move(copies[i]));
            if (result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_STREAM_API(cuMemcpyBatchAsync, _ptsz,
                   (CUdeviceptr * to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                    CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,
                    std::size_t* failed, CUstream stream),
                   (to, from, bytes, count, attributes, starts, attribute_count, failed, stream)) {
    return copy_batch(site, {to, from, bytes, count, attributes, starts, attribute_count}, failed, stream);
}

SIMCUDA_STREAM_API(cuMemcpyBatchAsync_v2, _ptsz,
                   (CUdeviceptr * to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                    CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,
                    CUstream stream),
                   (to, from, bytes, count, attributes, starts, attribute_count, stream)) {
    return copy_batch(site, {to, from, bytes, count, attributes, starts, attribute_count}, nullptr, stream);
}

}  // namespace simcuda::driver

// Batches of copies, by a driver that takes them in captured streams too: each copy is a node. Drivers so far
// refuse them there, as the simulated one does.
#include "tests/entry/overlay/simulated.h"

static bool captured(CUstream stream, decltype(&cuStreamIsCapturing) ask) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return ask(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult each(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                     CUstream stream, decltype(&cuMemcpyAsync) copy) {
    CUresult status = CUDA_SUCCESS;
    for (std::size_t i = 0; i < count && status == CUDA_SUCCESS; ++i)
        status = copy(to[i], from[i], bytes[i], stream);
    return status;
}

#define OVERLAY_BATCH(version, suffix, failed_parameter, failed)                                         \
    CUresult cuMemcpyBatchAsync##version##suffix(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, \
                                                 std::size_t count, CUmemcpyAttributes* attributes,      \
                                                 std::size_t* starts, std::size_t runs failed_parameter, \
                                                 CUstream stream) {                                      \
        if (captured(stream, SIM(cuStreamIsCapturing##suffix)))                                          \
            return each(to, from, bytes, count, stream, SIM(cuMemcpyAsync##suffix));                     \
        return SIM(cuMemcpyBatchAsync##version##suffix)(to, from, bytes, count, attributes, starts,      \
                                                        runs failed, stream);                            \
    }
#define OVERLAY_COMMA ,
OVERLAY_BATCH(, , OVERLAY_COMMA std::size_t* failed, OVERLAY_COMMA failed)
OVERLAY_BATCH(, _ptsz, OVERLAY_COMMA std::size_t* failed, OVERLAY_COMMA failed)
OVERLAY_BATCH(_v2, , , )
OVERLAY_BATCH(_v2, _ptsz, , )

// Pointer to pointer only; each is a row after another.
static CUresult copy_batch_3d(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, CUstream stream,
                              decltype(&cuMemcpyAsync) copy) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto& [src, dst, extent, order, flags] = copies[i];
        for (std::size_t row = 0; row < extent.height; ++row) {
            const std::size_t to = row * dst.op.ptr.rowLength;
            const std::size_t from = row * src.op.ptr.rowLength;
            const CUresult status = copy(dst.op.ptr.ptr + to, src.op.ptr.ptr + from, extent.width, stream);
            if (status != CUDA_SUCCESS) return status;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpy3DBatchAsync_v2(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long,
                                 CUstream stream) {
    return copy_batch_3d(count, copies, stream, SIM(cuMemcpyAsync));
}

CUresult cuMemcpy3DBatchAsync_v2_ptsz(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long,
                                      CUstream stream) {
    return copy_batch_3d(count, copies, stream, SIM(cuMemcpyAsync_ptsz));
}

CUresult cuMemcpy3DBatchAsync(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t* failed,
                              unsigned long long, CUstream stream) {
    *failed = SIZE_MAX;
    return copy_batch_3d(count, copies, stream, SIM(cuMemcpyAsync));
}

CUresult cuMemcpy3DBatchAsync_ptsz(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t* failed,
                                   unsigned long long, CUstream stream) {
    *failed = SIZE_MAX;
    return copy_batch_3d(count, copies, stream, SIM(cuMemcpyAsync_ptsz));
}

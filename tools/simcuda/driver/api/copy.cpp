// cuMemcpy* of linear memory.
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

enum class Side { Host, Device, Any };

CopyEnd find(const Context& context, Side side, std::uint64_t address, std::size_t bytes) {
    switch (side) {
        case Side::Host:
            return host_end(context, reinterpret_cast<const void*>(address), bytes);
        case Side::Device:
            return device_end(context, address, bytes);
        default:
            return any_end(context, address, bytes);
    }
}

struct End {
    Side side;
    std::uint64_t address;
};

End host(const void* pointer) {
    return {Side::Host, reinterpret_cast<std::uint64_t>(pointer)};
}
End device(CUdeviceptr pointer) {
    return {Side::Device, pointer};
}
End any(CUdeviceptr pointer) {
    return {Side::Any, pointer};
}

CopyOp linear(const Context& context, End to, End from, std::size_t bytes) {
    if (bytes == 0) return {};
    return linear_copy(find(context, to.side, to.address, bytes),
                       find(context, from.side, from.address, bytes), bytes);
}

// Between contexts: each side is memory that its own can reach.
CopyOp linear(CUcontext to_context, CUdeviceptr to, CUcontext from_context, CUdeviceptr from,
              std::size_t bytes) {
    if (bytes == 0) return {};
    return linear_copy(find(*checked_context(to_context), Side::Device, to, bytes),
                       find(*checked_context(from_context), Side::Device, from, bytes), bytes);
}

CUresult copy(Site site, End to, End from, std::size_t bytes) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, nullptr, site.per_thread);
        return copy_and_wait(context, *stream, linear(context, to, from, bytes));
    });
}

CUresult copy(Site site, End to, End from, std::size_t bytes, CUstream handle) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, handle, site.per_thread);
        return copy_async(context, *stream, linear(context, to, from, bytes));
    });
}

CUresult copy(Site site, const CUDA_MEMCPY3D* parameters) {
    return call(site.entry, [&](Context& context) {
        require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve(context, nullptr, site.per_thread);
        return copy_and_wait(context, *stream, pitched_copy(context, *parameters));
    });
}

CUresult copy(Site site, const CUDA_MEMCPY3D* parameters, CUstream handle) {
    return call(site.entry, [&](Context& context) {
        require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve(context, handle, site.per_thread);
        return copy_async(context, *stream, pitched_copy(context, *parameters));
    });
}

CUresult copy(Site site, const CUDA_MEMCPY2D* parameters) {
    if (parameters == nullptr) return copy(site, static_cast<const CUDA_MEMCPY3D*>(nullptr));
    const CUDA_MEMCPY3D full = as_3d(*parameters);
    return copy(site, &full);
}

CUresult copy(Site site, const CUDA_MEMCPY2D* parameters, CUstream handle) {
    if (parameters == nullptr) return copy(site, static_cast<const CUDA_MEMCPY3D*>(nullptr), handle);
    const CUDA_MEMCPY3D full = as_3d(*parameters);
    return copy(site, &full, handle);
}

CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER& p) {
    CUDA_MEMCPY3D copy{};
    copy.srcXInBytes = p.srcXInBytes;
    copy.srcY = p.srcY;
    copy.srcZ = p.srcZ;
    copy.srcLOD = p.srcLOD;
    copy.srcMemoryType = p.srcMemoryType;
    copy.srcHost = p.srcHost;
    copy.srcDevice = p.srcDevice;
    copy.srcArray = p.srcArray;
    copy.srcPitch = p.srcPitch;
    copy.srcHeight = p.srcHeight;
    copy.dstXInBytes = p.dstXInBytes;
    copy.dstY = p.dstY;
    copy.dstZ = p.dstZ;
    copy.dstLOD = p.dstLOD;
    copy.dstMemoryType = p.dstMemoryType;
    copy.dstHost = p.dstHost;
    copy.dstDevice = p.dstDevice;
    copy.dstArray = p.dstArray;
    copy.dstPitch = p.dstPitch;
    copy.dstHeight = p.dstHeight;
    copy.WidthInBytes = p.WidthInBytes;
    copy.Height = p.Height;
    copy.Depth = p.Depth;
    return copy;
}

CopyOp pitched(const CUDA_MEMCPY3D_PEER& copy) {
    return pitched_copy(*checked_context(copy.dstContext), *checked_context(copy.srcContext),
                        without_contexts(copy));
}

// A copy between contexts is in order with the work of both.
void after_both(CUcontext one, CUcontext other) {
    synchronize(*checked_context(one));
    synchronize(*checked_context(other));
}

}  // namespace

SIMCUDA_STREAM_API(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes),
                   (to, from, bytes)) {
    return copy(site, any(to), any(from), bytes);
}

SIMCUDA_STREAM_API(cuMemcpyAsync, _ptsz,
                   (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                   (to, from, bytes, stream)) {
    return copy(site, any(to), any(from), bytes, stream);
}

SIMCUDA_STREAM_API(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void* from, std::size_t bytes),
                   (to, from, bytes)) {
    return copy(site, device(to), host(from), bytes);
}

SIMCUDA_STREAM_API(cuMemcpyHtoDAsync_v2, _ptsz,
                   (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream),
                   (to, from, bytes, stream)) {
    return copy(site, device(to), host(from), bytes, stream);
}

SIMCUDA_STREAM_API(cuMemcpyDtoH_v2, _ptds, (void* to, CUdeviceptr from, std::size_t bytes),
                   (to, from, bytes)) {
    return copy(site, host(to), device(from), bytes);
}

SIMCUDA_STREAM_API(cuMemcpyDtoHAsync_v2, _ptsz,
                   (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                   (to, from, bytes, stream)) {
    return copy(site, host(to), device(from), bytes, stream);
}

SIMCUDA_STREAM_API(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes),
                   (to, from, bytes)) {
    return copy(site, device(to), device(from), bytes);
}

SIMCUDA_STREAM_API(cuMemcpyDtoDAsync_v2, _ptsz,
                   (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                   (to, from, bytes, stream)) {
    return copy(site, device(to), device(from), bytes, stream);
}

SIMCUDA_STREAM_API(cuMemcpyPeer, _ptds,
                   (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                    std::size_t bytes),
                   (to, to_context, from, from_context, bytes)) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, nullptr, site.per_thread);
        const CopyOp copy = linear(to_context, to, from_context, from, bytes);
        return copy_between(*stream, copy, {checked_context(to_context), checked_context(from_context)});
    });
}

SIMCUDA_STREAM_API(cuMemcpyPeerAsync, _ptsz,
                   (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                    std::size_t bytes, CUstream handle),
                   (to, to_context, from, from_context, bytes, handle)) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, handle, site.per_thread);
        return copy_async(context, *stream, linear(to_context, to, from_context, from, bytes));
    });
}

SIMCUDA_STREAM_API(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* parameters), (parameters)) {
    return copy(site, parameters);
}

SIMCUDA_STREAM_API(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* parameters), (parameters)) {
    return copy(site, parameters);
}

SIMCUDA_STREAM_API(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* parameters, CUstream stream),
                   (parameters, stream)) {
    return copy(site, parameters, stream);
}

SIMCUDA_STREAM_API(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* parameters), (parameters)) {
    return copy(site, parameters);
}

SIMCUDA_STREAM_API(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* parameters, CUstream stream),
                   (parameters, stream)) {
    return copy(site, parameters, stream);
}

SIMCUDA_STREAM_API(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER* parameters), (parameters)) {
    return call(site.entry, [&](Context& context) {
        require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
        after_both(parameters->dstContext, parameters->srcContext);
        const auto stream = resolve(context, nullptr, site.per_thread);
        return copy_and_wait(context, *stream, pitched(*parameters));
    });
}

SIMCUDA_STREAM_API(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER* parameters, CUstream handle),
                   (parameters, handle)) {
    return call(site.entry, [&](Context& context) {
        require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve(context, handle, site.per_thread);
        return copy_async(context, *stream, pitched(*parameters));
    });
}

}  // namespace simcuda::driver

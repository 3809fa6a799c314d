// Texture and surface objects, whose descriptions name formats and sampling the runtime's way.
#include <algorithm>
#include <iterator>

#include "tools/simcuda/runtime/array.h"

namespace simcuda::runtime {
namespace {

CUDA_RESOURCE_DESC to_driver(const cudaResourceDesc* resource) {
    require(resource != nullptr, cudaErrorInvalidValue);
    CUDA_RESOURCE_DESC out{};
    out.resType = static_cast<CUresourcetype>(resource->resType);
    out.flags = resource->flags;
    switch (resource->resType) {
        case cudaResourceTypeArray:
            out.res.array.hArray = reinterpret_cast<CUarray>(resource->res.array.array);
            break;
        case cudaResourceTypeMipmappedArray:
            out.res.mipmap.hMipmappedArray = reinterpret_cast<CUmipmappedArray>(resource->res.mipmap.mipmap);
            break;
        case cudaResourceTypeLinear: {
            const auto& linear = resource->res.linear;
            const Format format = driver_format(linear.desc);
            out.res.linear = {reinterpret_cast<CUdeviceptr>(linear.devPtr), format.format, format.channels,
                              linear.sizeInBytes};
            break;
        }
        case cudaResourceTypePitch2D: {
            const auto& plane = resource->res.pitch2D;
            const Format format = driver_format(plane.desc);
            out.res.pitch2D = {reinterpret_cast<CUdeviceptr>(plane.devPtr),
                               format.format,
                               format.channels,
                               plane.width,
                               plane.height,
                               plane.pitchInBytes};
            break;
        }
    }
    return out;
}

cudaResourceDesc to_runtime(const CUDA_RESOURCE_DESC& resource) {
    cudaResourceDesc out{};
    out.resType = static_cast<cudaResourceType>(resource.resType);
    out.flags = resource.flags;
    switch (resource.resType) {
        case CU_RESOURCE_TYPE_ARRAY:
            out.res.array.array = reinterpret_cast<cudaArray_t>(resource.res.array.hArray);
            break;
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
            out.res.mipmap.mipmap =
                reinterpret_cast<cudaMipmappedArray_t>(resource.res.mipmap.hMipmappedArray);
            break;
        case CU_RESOURCE_TYPE_LINEAR: {
            const auto& linear = resource.res.linear;
            out.res.linear = {reinterpret_cast<void*>(linear.devPtr),
                              channel_of(Format{linear.format, linear.numChannels}), linear.sizeInBytes};
            break;
        }
        case CU_RESOURCE_TYPE_PITCH2D: {
            const auto& plane = resource.res.pitch2D;
            out.res.pitch2D = {reinterpret_cast<void*>(plane.devPtr),
                               channel_of(Format{plane.format, plane.numChannels}), plane.width, plane.height,
                               plane.pitchInBytes};
            break;
        }
    }
    return out;
}

CUDA_TEXTURE_DESC to_driver(const cudaTextureDesc* sampling) {
    require(sampling != nullptr, cudaErrorInvalidValue);
    CUDA_TEXTURE_DESC out{};
    std::transform(std::begin(sampling->addressMode), std::end(sampling->addressMode), out.addressMode,
                   [](cudaTextureAddressMode mode) { return static_cast<CUaddress_mode>(mode); });
    out.filterMode = static_cast<CUfilter_mode>(sampling->filterMode);
    const auto flag = [&](bool wanted, unsigned value) { out.flags |= wanted ? value : 0; };
    flag(sampling->readMode == cudaReadModeElementType, CU_TRSF_READ_AS_INTEGER);
    flag(sampling->normalizedCoords != 0, CU_TRSF_NORMALIZED_COORDINATES);
    flag(sampling->sRGB != 0, CU_TRSF_SRGB);
    flag(sampling->disableTrilinearOptimization != 0, CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION);
    flag(sampling->seamlessCubemap != 0, CU_TRSF_SEAMLESS_CUBEMAP);
    out.maxAnisotropy = sampling->maxAnisotropy;
    out.mipmapFilterMode = static_cast<CUfilter_mode>(sampling->mipmapFilterMode);
    out.mipmapLevelBias = sampling->mipmapLevelBias;
    out.minMipmapLevelClamp = sampling->minMipmapLevelClamp;
    out.maxMipmapLevelClamp = sampling->maxMipmapLevelClamp;
    std::copy(std::begin(sampling->borderColor), std::end(sampling->borderColor), out.borderColor);
    return out;
}

// The driver takes points of what is read as integers, whatever the filter; the runtime refuses.
void require_filterable(const Driver& cu, const CUDA_RESOURCE_DESC& resource,
                        const CUDA_TEXTURE_DESC& sampling) {
    if (sampling.filterMode != CU_TR_FILTER_MODE_LINEAR || (sampling.flags & CU_TRSF_READ_AS_INTEGER) == 0)
        return;
    CUarray_format format = CU_AD_FORMAT_FLOAT;
    if (resource.resType == CU_RESOURCE_TYPE_PITCH2D) format = resource.res.pitch2D.format;
    if (resource.resType == CU_RESOURCE_TYPE_ARRAY) {
        CUDA_ARRAY3D_DESCRIPTOR array{};
        require(cu.cuArray3DGetDescriptor_v2(&array, resource.res.array.hArray));
        format = array.Format;
    }
    require(format == CU_AD_FORMAT_FLOAT || format == CU_AD_FORMAT_HALF, cudaErrorInvalidFilterSetting);
}

cudaTextureDesc to_runtime(const CUDA_TEXTURE_DESC& sampling) {
    cudaTextureDesc out{};
    std::transform(std::begin(sampling.addressMode), std::end(sampling.addressMode), out.addressMode,
                   [](CUaddress_mode mode) { return static_cast<cudaTextureAddressMode>(mode); });
    out.filterMode = static_cast<cudaTextureFilterMode>(sampling.filterMode);
    const auto flag = [&](unsigned value) { return (sampling.flags & value) != 0; };
    out.readMode = flag(CU_TRSF_READ_AS_INTEGER) ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
    out.normalizedCoords = flag(CU_TRSF_NORMALIZED_COORDINATES);
    out.sRGB = flag(CU_TRSF_SRGB);
    out.disableTrilinearOptimization = flag(CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION);
    out.seamlessCubemap = flag(CU_TRSF_SEAMLESS_CUBEMAP);
    out.maxAnisotropy = sampling.maxAnisotropy;
    out.mipmapFilterMode = static_cast<cudaTextureFilterMode>(sampling.mipmapFilterMode);
    out.mipmapLevelBias = sampling.mipmapLevelBias;
    out.minMipmapLevelClamp = sampling.minMipmapLevelClamp;
    out.maxMipmapLevelClamp = sampling.maxMipmapLevelClamp;
    std::copy(std::begin(sampling.borderColor), std::end(sampling.borderColor), out.borderColor);
    return out;
}

// The two differ in their types alone.
template <class Out, class In>
Out view_as(const In& view) {
    Out out{};
    out.format = static_cast<decltype(out.format)>(view.format);
    out.width = view.width;
    out.height = view.height;
    out.depth = view.depth;
    out.firstMipmapLevel = view.firstMipmapLevel;
    out.lastMipmapLevel = view.lastMipmapLevel;
    out.firstLayer = view.firstLayer;
    out.lastLayer = view.lastLayer;
    return out;
}

cudaResourceViewDesc to_runtime(const CUDA_RESOURCE_VIEW_DESC& view) {
    return view_as<cudaResourceViewDesc>(view);
}

// Asks the driver for a description and answers it in the runtime's terms.
template <auto function, class Out>
cudaError_t describe(Out* out, unsigned long long object) {
    return run([&](const Driver& cu) {
        require(out != nullptr, cudaErrorInvalidValue);
        auto found = []<class Desc>(CUresult (*)(Desc*, unsigned long long)) { return Desc{}; }(cu.*function);
        const CUresult result = (cu.*function)(&found, object);
        if (result == CUDA_SUCCESS) *out = to_runtime(found);
        return result;
    });
}

}  // namespace
}  // namespace simcuda::runtime

using namespace simcuda::runtime;

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* sampling, const cudaResourceViewDesc* view) {
    return run([&](const Driver& cu) {
        const CUDA_RESOURCE_DESC in_driver = to_driver(resource);
        const CUDA_TEXTURE_DESC sampled = to_driver(sampling);
        require_filterable(cu, in_driver, sampled);
        CUDA_RESOURCE_VIEW_DESC viewed{};
        if (view != nullptr) viewed = view_as<CUDA_RESOURCE_VIEW_DESC>(*view);
        return cu.cuTexObjectCreate(object, &in_driver, &sampled, view != nullptr ? &viewed : nullptr);
    });
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource, cudaTextureObject_t object) {
    return describe<&Driver::cuTexObjectGetResourceDesc>(resource, object);
}

cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* sampling, cudaTextureObject_t object) {
    return describe<&Driver::cuTexObjectGetTextureDesc>(sampling, object);
}

cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc* view, cudaTextureObject_t object) {
    return describe<&Driver::cuTexObjectGetResourceViewDesc>(view, object);
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* resource) {
    return run([&](const Driver& cu) {
        const CUDA_RESOURCE_DESC in_driver = to_driver(resource);
        return cu.cuSurfObjectCreate(object, &in_driver);
    });
}

cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* resource, cudaSurfaceObject_t object) {
    return describe<&Driver::cuSurfObjectGetResourceDesc>(resource, object);
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(std::size_t* elements, const cudaChannelFormatDesc* channel,
                                                 int device) {
    return run<Need::Driver>([&](const Driver& cu) {
        require(elements != nullptr && channel != nullptr, cudaErrorInvalidValue);
        const Format format = driver_format(*channel);
        return cu.cuDeviceGetTexture1DLinearMaxWidth(elements, format.format, format.channels, device);
    });
}

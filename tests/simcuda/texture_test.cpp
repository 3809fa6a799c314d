// Texture and surface objects: which descriptions are accepted, and what kernels find behind the handle.
#include "tools/simcuda/exec/texture.h"
#include <algorithm>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;
using simcuda::exec::AddressMode;
using simcuda::exec::ChannelKind;

CUarray array_of(std::size_t width, std::size_t height, std::size_t depth, CUarray_format format,
                 unsigned channels, unsigned flags = 0) {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor{width, height, depth, format, channels, flags};
    CUarray array = nullptr;
    OK(cuArray3DCreate, &array, &descriptor);
    return array;
}

CUDA_RESOURCE_DESC of_array(CUarray array) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return resource;
}

CUDA_RESOURCE_DESC of_linear(CUdeviceptr address, CUarray_format format, unsigned channels,
                             std::size_t bytes) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {address, format, channels, bytes};
    return resource;
}

CUresult create_texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& sampling = {},
                        const CUDA_RESOURCE_VIEW_DESC* view = nullptr) {
    CUtexObject object = 0;
    const CUresult result = CU(cuTexObjectCreate)(&object, &resource, &sampling, view);
    if (result == CUDA_SUCCESS) OK(cuTexObjectDestroy, object);
    return result;
}

const simcuda::exec::Texture& behind(CUtexObject object) {
    return *reinterpret_cast<const simcuda::exec::Texture*>(object);
}

SIM_TEST("texture: over an array, and asked what it is", {}) {
    const Gpu gpu;
    const CUarray array = array_of(20, 10, 3, CU_AD_FORMAT_SIGNED_INT16, 2, CUDA_ARRAY3D_LAYERED);
    const CUDA_RESOURCE_DESC resource = of_array(array);
    CUDA_TEXTURE_DESC sampling{};
    sampling.addressMode[0] = CU_TR_ADDRESS_MODE_MIRROR;
    sampling.addressMode[1] = CU_TR_ADDRESS_MODE_BORDER;
    sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
    sampling.flags = CU_TRSF_NORMALIZED_COORDINATES;
    sampling.borderColor[3] = 0.25f;
    CUtexObject object = 0;
    OK(cuTexObjectCreate, &object, &resource, &sampling, nullptr);
    const auto& texture = behind(object);
    EXPECT(texture.mark == simcuda::exec::kTextureMark);
    EXPECT(texture.texels.width == 20 && texture.texels.height == 10 && texture.texels.depth == 3);
    EXPECT(texture.texels.row_bytes >= 80 && texture.texels.slice_bytes == 10 * texture.texels.row_bytes);
    EXPECT(texture.texels.kind == ChannelKind::Signed);
    EXPECT(texture.texels.channel_bytes == 2 && texture.texels.channels == 2);
    EXPECT(texture.addressing[0] == AddressMode::Mirror && texture.addressing[1] == AddressMode::Border);
    EXPECT(texture.filters && texture.normalized_coordinates && texture.normalized_reads);
    EXPECT(texture.border[3] == 0.25f);

    CUDA_RESOURCE_DESC held{};
    OK(cuTexObjectGetResourceDesc, &held, object);
    EXPECT(held.resType == CU_RESOURCE_TYPE_ARRAY && held.res.array.hArray == array);
    CUDA_TEXTURE_DESC sampled{};
    OK(cuTexObjectGetTextureDesc, &sampled, object);
    EXPECT(sampled.filterMode == CU_TR_FILTER_MODE_LINEAR && sampled.flags == CU_TRSF_NORMALIZED_COORDINATES);
    CUDA_RESOURCE_VIEW_DESC viewed{};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceViewDesc, &viewed, object);
    OK(cuTexObjectDestroy, object);
    EXPECT(texture.mark == 0);  // nothing can be reading through it
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy, object);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc, &held, object);

    // A view of some layers, in another format of the same size.
    CUDA_RESOURCE_VIEW_DESC view{};
    view.format = CU_RES_VIEW_FORMAT_UINT_4X8;
    view.width = 20;
    view.height = 10;
    view.depth = 3;
    view.firstLayer = 1;
    view.lastLayer = 2;
    OK(cuTexObjectCreate, &object, &resource, &sampling, &view);
    EXPECT(behind(object).texels.depth == 2);
    EXPECT(behind(object).texels.kind == ChannelKind::Unsigned);
    EXPECT(behind(object).texels.channel_bytes == 1 && behind(object).texels.channels == 4);
    OK(cuTexObjectGetResourceViewDesc, &viewed, object);
    EXPECT(viewed.firstLayer == 1 && viewed.format == CU_RES_VIEW_FORMAT_UINT_4X8);
    OK(cuTexObjectDestroy, object);
    view.width = 10;
    EXPECT(create_texture(resource, sampling, &view) == CUDA_ERROR_INVALID_VALUE);
    view.width = 20;
    view.lastLayer = 3;
    EXPECT(create_texture(resource, sampling, &view) == CUDA_ERROR_INVALID_VALUE);
    view.lastLayer = 2;
    view.format = CU_RES_VIEW_FORMAT_UINT_2X8;
    EXPECT(create_texture(resource, sampling, &view) == CUDA_ERROR_INVALID_VALUE);
    view.format = CU_RES_VIEW_FORMAT_UNSIGNED_BC1;
    EXPECT(create_texture(resource, sampling, &view) == CUDA_ERROR_NOT_SUPPORTED);
}

SIM_TEST("texture: over linear and pitched memory", {}) {
    const Gpu gpu;
    CUdeviceptr memory = 0;
    OK(cuMemAlloc, &memory, 64 << 10);
    const auto linear = [&](CUdeviceptr at, std::size_t bytes, CUarray_format format = CU_AD_FORMAT_FLOAT) {
        return create_texture(of_linear(at, format, 4, bytes));
    };
    EXPECT(linear(memory, 64 << 10) == CUDA_SUCCESS);
    EXPECT(linear(memory + 512, 1024) == CUDA_SUCCESS);
    EXPECT(linear(memory + 16, 1024) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(linear(memory, (64 << 10) + 16) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(linear(memory, 8) == CUDA_ERROR_INVALID_VALUE);  // not one element
    EXPECT(linear(0, 1024) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(linear(memory, 1024, CU_AD_FORMAT_NV12) == CUDA_ERROR_NOT_SUPPORTED);

    const CUDA_RESOURCE_DESC bytes = of_linear(memory, CU_AD_FORMAT_UNSIGNED_INT8, 1, 1000);
    CUDA_TEXTURE_DESC sampling{};
    sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;  // of no consequence here
    CUtexObject object = 0;
    OK(cuTexObjectCreate, &object, &bytes, &sampling, nullptr);
    EXPECT(behind(object).texels.base == memory && behind(object).texels.width == 1000);
    EXPECT(behind(object).addressing[0] == AddressMode::Border && !behind(object).filters);
    EXPECT(behind(object).normalized_reads);
    CUDA_RESOURCE_VIEW_DESC view{};
    EXPECT(create_texture(bytes, {}, &view) == CUDA_ERROR_INVALID_VALUE);

    CUDA_RESOURCE_DESC plane{};
    plane.resType = CU_RESOURCE_TYPE_PITCH2D;
    plane.res.pitch2D = {memory, CU_AD_FORMAT_FLOAT, 1, 100, 50, 512};
    OK(cuTexObjectCreate, &object, &plane, &sampling, nullptr);
    EXPECT(behind(object).texels.width == 100 && behind(object).texels.height == 50);
    EXPECT(behind(object).texels.row_bytes == 512 && behind(object).filters);
    plane.res.pitch2D.pitchInBytes = 408;
    EXPECT(create_texture(plane) == CUDA_ERROR_INVALID_VALUE);
    plane.res.pitch2D.pitchInBytes = 384;
    EXPECT(create_texture(plane) == CUDA_ERROR_INVALID_VALUE);
    plane.res.pitch2D = {memory, CU_AD_FORMAT_FLOAT, 1, 100, 200, 512};
    EXPECT(create_texture(plane) == CUDA_ERROR_INVALID_VALUE);  // over the allocation's end
    plane.resType = static_cast<CUresourcetype>(7);
    EXPECT(create_texture(plane) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("texture: what cannot be sampled is refused", {}) {
    const Gpu gpu;
    const CUDA_RESOURCE_DESC integers = of_array(array_of(8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1));
    const CUDA_RESOURCE_DESC words = of_array(array_of(8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1));
    CUDA_TEXTURE_DESC sampling{};
    sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
    EXPECT(create_texture(integers, sampling) == CUDA_SUCCESS);
    EXPECT(create_texture(words, sampling) == CUDA_ERROR_INVALID_VALUE);
    // Asked for integers the driver takes points, as ffmpeg's thumbnail_cuda has it; the runtime refuses.
    sampling.flags = CU_TRSF_READ_AS_INTEGER;
    CUtexObject points = 0;
    OK(cuTexObjectCreate, &points, &integers, &sampling, nullptr);
    EXPECT(!behind(points).filters);
    OK(cuTexObjectDestroy, points);
    sampling.filterMode = CU_TR_FILTER_MODE_POINT;
    EXPECT(create_texture(integers, sampling) == CUDA_SUCCESS);
    sampling.flags = 0x1000;
    EXPECT(create_texture(integers, sampling) == CUDA_ERROR_INVALID_VALUE);
    sampling.flags = CU_TRSF_SRGB;
    EXPECT(create_texture(integers, sampling) == CUDA_ERROR_NOT_SUPPORTED);
    sampling.flags = CU_TRSF_SEAMLESS_CUBEMAP;
    EXPECT(create_texture(integers, sampling) == CUDA_ERROR_INVALID_VALUE);
    sampling.flags = 0;
    sampling.addressMode[1] = static_cast<CUaddress_mode>(9);
    EXPECT(create_texture(integers, sampling) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_texture(of_array(nullptr)) == CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_DESC flagged = integers;
    flagged.flags = 1;
    EXPECT(create_texture(flagged) == CUDA_ERROR_INVALID_VALUE);

    const CUDA_ARRAY3D_DESCRIPTOR descriptor{64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_RESOURCE_DESC mipmapped{};
    mipmapped.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    OK(cuMipmappedArrayCreate, &mipmapped.res.mipmap.hMipmappedArray, &descriptor, 3);
    sampling = {};
    EXPECT(create_texture(mipmapped, sampling) == CUDA_ERROR_INVALID_VALUE);  // needs normalised coordinates
    sampling.flags = CU_TRSF_NORMALIZED_COORDINATES;
    sampling.maxMipmapLevelClamp = 2;
    EXPECT(create_texture(mipmapped, sampling) == CUDA_SUCCESS);
    sampling.mipmapFilterMode = static_cast<CUfilter_mode>(2);
    EXPECT(create_texture(mipmapped, sampling) == CUDA_ERROR_INVALID_VALUE);
    sampling.mipmapFilterMode = CU_TR_FILTER_MODE_POINT;
    sampling.maxAnisotropy = 4;
    EXPECT(create_texture(mipmapped, sampling) == CUDA_ERROR_NOT_SUPPORTED);
}

SIM_TEST("texture: the levels of a mipmapped array, and a view of some", {}) {
    const Gpu gpu;
    const CUDA_ARRAY3D_DESCRIPTOR descriptor{64, 32, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2, 0};
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    OK(cuMipmappedArrayCreate, &resource.res.mipmap.hMipmappedArray, &descriptor, 5);
    CUDA_TEXTURE_DESC sampling{};
    sampling.flags = CU_TRSF_NORMALIZED_COORDINATES;
    sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
    sampling.mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR;
    sampling.mipmapLevelBias = -0.5f;
    sampling.minMipmapLevelClamp = 0.25f;
    sampling.maxMipmapLevelClamp = 3;
    CUtexObject object = 0;
    OK(cuTexObjectCreate, &object, &resource, &sampling, nullptr);
    const auto& all = behind(object);
    EXPECT(all.levels == 5 && all.filters && all.filters_levels);
    EXPECT(all.level_bias == -0.5f && all.least_level == 0.25f && all.most_level == 3);
    for (unsigned i = 0; i < 5; ++i) {
        EXPECT(all.level(i).width == 64u >> i && all.level(i).height == std::max(32u >> i, 1u));
        EXPECT(all.level(i).kind == ChannelKind::Unsigned && all.level(i).channels == 2);
        for (unsigned other = 0; other < i; ++other) EXPECT(all.level(i).base != all.level(other).base);
    }
    OK(cuTexObjectDestroy, object);

    CUDA_RESOURCE_VIEW_DESC view{};
    view.format = CU_RES_VIEW_FORMAT_SINT_2X16;
    view.width = 64, view.height = 32;
    view.firstMipmapLevel = 1, view.lastMipmapLevel = 3;
    OK(cuTexObjectCreate, &object, &resource, &sampling, &view);
    const auto& some = behind(object);
    EXPECT(some.levels == 3);
    for (unsigned i = 0; i < 3; ++i)
        EXPECT(some.level(i).width == 32u >> i && some.level(i).kind == ChannelKind::Signed);
    OK(cuTexObjectDestroy, object);
    view.lastMipmapLevel = 5;
    EXPECT(create_texture(resource, sampling, &view) == CUDA_ERROR_INVALID_VALUE);
    view.firstMipmapLevel = 3, view.lastMipmapLevel = 2;
    EXPECT(create_texture(resource, sampling, &view) == CUDA_ERROR_INVALID_VALUE);
    view.firstMipmapLevel = 2, view.lastMipmapLevel = 2, view.width = 16;  // the view is of the whole
    EXPECT(create_texture(resource, sampling, &view) == CUDA_ERROR_INVALID_VALUE);
    view.width = 64;
    EXPECT(create_texture(resource, sampling, &view) == CUDA_SUCCESS);
    // Integers that are read as such have no mean.
    sampling.flags |= CU_TRSF_READ_AS_INTEGER;
    OK(cuTexObjectCreate, &object, &resource, &sampling, nullptr);
    EXPECT(!behind(object).filters && !behind(object).filters_levels);
}

SIM_TEST("surface: over an array that was made for it", {}) {
    const Gpu gpu;
    const CUarray array = array_of(20, 10, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST);
    CUDA_RESOURCE_DESC resource = of_array(array), held{};
    CUsurfObject object = 0;
    OK(cuSurfObjectCreate, &object, &resource);
    const auto& surface = *reinterpret_cast<const simcuda::exec::Surface*>(object);
    EXPECT(surface.mark == simcuda::exec::kSurfaceMark && surface.texels.width == 20);
    OK(cuSurfObjectGetResourceDesc, &held, object);
    EXPECT(held.res.array.hArray == array);
    OK(cuSurfObjectDestroy, object);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy, object);
    resource = of_array(array_of(20, 10, 0, CU_AD_FORMAT_FLOAT, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate, &object, &resource);
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate, &object, &resource);
}

}  // namespace

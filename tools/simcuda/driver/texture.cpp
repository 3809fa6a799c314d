#include "tools/simcuda/driver/texture.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

using exec::ChannelKind;
using exec::Texels;

Handles<TextureObject>& textures() {
    static auto& handles = *new Handles<TextureObject>;
    return handles;
}

Handles<SurfaceObject>& surfaces() {
    static auto& handles = *new Handles<SurfaceObject>;
    return handles;
}

// Objects that were destroyed while kernels may have read through them stay for this many others.
constexpr std::size_t kRetired = 4096;

void retire(std::shared_ptr<void> object) {
    static auto& mutex = *new std::mutex;
    static auto& retired = *new std::deque<std::shared_ptr<void>>;
    std::lock_guard lock(mutex);
    retired.push_back(std::move(object));
    if (retired.size() > kRetired) retired.pop_front();
}

[[noreturn]] void refuse(const char* what) {
    message("textures with %s are not simulated: CUDA_ERROR_NOT_SUPPORTED", what);
    throw Failure{CUDA_ERROR_NOT_SUPPORTED};
}

std::size_t limit(const Context& context, CUdevice_attribute attribute) {
    return static_cast<std::size_t>(device_attribute(context.device(), attribute));
}

void set_format(Texels& texels, CUarray_format format, unsigned channels) {
    require(channels == 1 || channels == 2 || channels == 4, CUDA_ERROR_INVALID_VALUE);
    texels.channel_bytes = static_cast<std::uint8_t>(checked_channel_bytes(format));
    texels.channels = static_cast<std::uint8_t>(channels);
    switch (format) {
        case CU_AD_FORMAT_HALF:
        case CU_AD_FORMAT_FLOAT:
            texels.kind = ChannelKind::Float;
            break;
        case CU_AD_FORMAT_SIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT32:
            texels.kind = ChannelKind::Signed;
            break;
        default:
            texels.kind = ChannelKind::Unsigned;
            break;
    }
}

Texels texels_of(const Array& array) {
    Texels texels;
    texels.base = array.memory->address;
    texels.width = static_cast<std::uint32_t>(array.descriptor.Width);
    texels.height = static_cast<std::uint32_t>(array.rows());
    texels.depth = static_cast<std::uint32_t>(array.slices());
    texels.row_bytes = array.pitch;
    texels.slice_bytes = array.pitch * array.rows();
    set_format(texels, array.descriptor.Format, array.descriptor.NumChannels);
    return texels;
}

Texels linear_texels(const Context& context, const CUDA_RESOURCE_DESC& resource) {
    const auto& linear = resource.res.linear;
    Texels texels;
    set_format(texels, linear.format, linear.numChannels);
    const std::size_t elements = linear.sizeInBytes / texels.element_bytes();
    require(linear.devPtr % limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) == 0,
            CUDA_ERROR_INVALID_VALUE);
    require(elements != 0 && elements <= limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH),
            CUDA_ERROR_INVALID_VALUE);
    device_end(context, linear.devPtr, linear.sizeInBytes);
    texels.base = linear.devPtr;
    texels.width = static_cast<std::uint32_t>(elements);
    texels.row_bytes = texels.slice_bytes = elements * texels.element_bytes();
    return texels;
}

Texels pitched_texels(const Context& context, const CUDA_RESOURCE_DESC& resource) {
    const auto& plane = resource.res.pitch2D;
    Texels texels;
    set_format(texels, plane.format, plane.numChannels);
    const std::size_t row = plane.width * texels.element_bytes();
    require(plane.devPtr % limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) == 0 &&
                plane.pitchInBytes % limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) == 0,
            CUDA_ERROR_INVALID_VALUE);
    require(plane.width != 0 && plane.height != 0 && plane.pitchInBytes >= row &&
                plane.width <= limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) &&
                plane.height <= limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) &&
                plane.pitchInBytes <= limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH),
            CUDA_ERROR_INVALID_VALUE);
    device_end(context, plane.devPtr, (plane.height - 1) * plane.pitchInBytes + row);
    texels.base = plane.devPtr;
    texels.width = static_cast<std::uint32_t>(plane.width);
    texels.height = static_cast<std::uint32_t>(plane.height);
    texels.row_bytes = plane.pitchInBytes;
    texels.slice_bytes = plane.pitchInBytes * plane.height;
    return texels;
}

// The handles in a resource description are part of its value.
template <class Find>
auto as_value(Find find) {
    try {
        return find();
    } catch (const Failure&) {
        throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

std::shared_ptr<MipmappedArray> mipmapped_of(const CUDA_RESOURCE_DESC& resource,
                                             const CUDA_TEXTURE_DESC& sampling) {
    const auto mipmapped = as_value([&] { return checked_mipmapped(resource.res.mipmap.hMipmappedArray); });
    require((sampling.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0, CUDA_ERROR_INVALID_VALUE);
    require(mipmapped->levels.size() <= exec::Texture::kMaxLevels, CUDA_ERROR_INVALID_VALUE);
    return mipmapped;
}

// What is asked of levels counts from the view's first one.
void set_levels(exec::Texture& texture, const MipmappedArray& mipmapped, const CUDA_TEXTURE_DESC& sampling,
                const CUDA_RESOURCE_VIEW_DESC* view) {
    const std::size_t first = view != nullptr ? view->firstMipmapLevel : 0;
    const std::size_t last = view != nullptr ? view->lastMipmapLevel : mipmapped.levels.size() - 1;
    require(first <= last && last < mipmapped.levels.size(), CUDA_ERROR_INVALID_VALUE);
    require(sampling.mipmapFilterMode == CU_TR_FILTER_MODE_POINT ||
                sampling.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR,
            CUDA_ERROR_INVALID_VALUE);
    texture.levels = static_cast<std::uint32_t>(last - first + 1);
    if (texture.levels > 1 && sampling.maxAnisotropy > 1) refuse("anisotropy over several mipmap levels");
    texture.texels = texels_of(*mipmapped.levels[first]);
    for (std::size_t i = first + 1; i <= last; ++i)
        texture.smaller[i - first - 1] = texels_of(*mipmapped.levels[i]);
    texture.filters_levels = sampling.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
    texture.level_bias = sampling.mipmapLevelBias;
    texture.least_level = sampling.minMipmapLevelClamp;
    texture.most_level = sampling.maxMipmapLevelClamp;
}

// Formats of a view are in the order of these, with 1, 2 and 4 channels each.
constexpr CUarray_format kViewFormats[] = {CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,
                                           CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
                                           CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
                                           CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};

// Of an array, or of the first level of a mipmapped one.
void check_view(const Array& array, const CUDA_RESOURCE_VIEW_DESC& view) {
    if (view.format >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1) refuse("block-compressed views");
    require(view.width == array.descriptor.Width && view.height == array.descriptor.Height &&
                view.depth == array.descriptor.Depth,
            CUDA_ERROR_INVALID_VALUE);
}

void apply_view(Texels& texels, const Array& array, const CUDA_RESOURCE_VIEW_DESC& view) {
    if (view.format != CU_RES_VIEW_FORMAT_NONE) {
        const unsigned index = static_cast<unsigned>(view.format) - 1;
        const std::uint32_t before = texels.element_bytes();
        set_format(texels, kViewFormats[index / 3], 1u << index % 3);
        require(texels.element_bytes() == before, CUDA_ERROR_INVALID_VALUE);
    }
    const bool layered = array.has(CUDA_ARRAY3D_LAYERED);
    if (!layered) {
        require(view.firstLayer == 0 && view.lastLayer == 0, CUDA_ERROR_INVALID_VALUE);
        return;
    }
    require(view.firstLayer <= view.lastLayer && view.lastLayer < array.slices(), CUDA_ERROR_INVALID_VALUE);
    texels.base += view.firstLayer * texels.slice_bytes;
    texels.depth = view.lastLayer - view.firstLayer + 1;
}

exec::AddressMode address_mode(CUaddress_mode mode) {
    require(mode >= CU_TR_ADDRESS_MODE_WRAP && mode <= CU_TR_ADDRESS_MODE_BORDER, CUDA_ERROR_INVALID_VALUE);
    return static_cast<exec::AddressMode>(mode);
}

void set_sampling(exec::Texture& texture, const CUDA_TEXTURE_DESC& sampling, bool linear_memory, bool cube) {
    constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                                CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
    require((sampling.flags & ~kKnown) == 0, CUDA_ERROR_INVALID_VALUE);
    if ((sampling.flags & CU_TRSF_SRGB) != 0) refuse("sRGB conversion");
    const Texels& texels = texture.texels;
    const bool small_integer = texels.kind != ChannelKind::Float && texels.channel_bytes < 4;
    texture.normalized_reads = small_integer && (sampling.flags & CU_TRSF_READ_AS_INTEGER) == 0;
    if (linear_memory) {
        std::fill_n(texture.addressing, 3, exec::AddressMode::Border);
        return;
    }
    require(sampling.filterMode == CU_TR_FILTER_MODE_POINT || sampling.filterMode == CU_TR_FILTER_MODE_LINEAR,
            CUDA_ERROR_INVALID_VALUE);
    // What is read as an integer cannot be filtered.
    texture.filters = sampling.filterMode == CU_TR_FILTER_MODE_LINEAR &&
                      !(small_integer && (sampling.flags & CU_TRSF_READ_AS_INTEGER) != 0);
    require(!texture.filters || texture.normalized_reads || texels.kind == ChannelKind::Float,
            CUDA_ERROR_INVALID_VALUE);
    // Between levels there is nothing that could be read as an integer.
    texture.filters_levels =
        texture.filters_levels && (texture.normalized_reads || texels.kind == ChannelKind::Float);
    texture.normalized_coordinates = (sampling.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    for (int i = 0; i < 3; ++i) texture.addressing[i] = address_mode(sampling.addressMode[i]);
    if ((sampling.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0) {
        require(cube, CUDA_ERROR_INVALID_VALUE);
        if (texture.filters) refuse("filtering across the edges of a cube");
        std::fill_n(texture.addressing, 3, exec::AddressMode::Clamp);
    }
    std::copy_n(sampling.borderColor, 4, texture.border);
}

template <class Object>
void destroy(Context& context, std::shared_ptr<Object> object, std::uint64_t& mark) {
    if (is_idle(context)) mark = 0;
    retire(std::move(object));
}

}  // namespace

std::shared_ptr<TextureObject> create_texture(Context& context, const CUDA_RESOURCE_DESC& resource,
                                              const CUDA_TEXTURE_DESC& sampling,
                                              const CUDA_RESOURCE_VIEW_DESC* view) {
    require(resource.flags == 0, CUDA_ERROR_INVALID_VALUE);
    auto object = std::make_shared<TextureObject>();
    std::shared_ptr<Array> array;
    std::shared_ptr<MipmappedArray> mipmapped;
    switch (resource.resType) {
        case CU_RESOURCE_TYPE_ARRAY:
            array = as_value([&] { return checked_array(resource.res.array.hArray); });
            require(view == nullptr || (view->firstMipmapLevel == 0 && view->lastMipmapLevel == 0),
                    CUDA_ERROR_INVALID_VALUE);
            break;
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
            mipmapped = mipmapped_of(resource, sampling);
            array = mipmapped->levels.front();
            break;
        case CU_RESOURCE_TYPE_LINEAR:
            object->texture.texels = linear_texels(context, resource);
            break;
        case CU_RESOURCE_TYPE_PITCH2D:
            object->texture.texels = pitched_texels(context, resource);
            break;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
    require(view == nullptr || array != nullptr, CUDA_ERROR_INVALID_VALUE);
    if (mipmapped != nullptr)
        set_levels(object->texture, *mipmapped, sampling, view);
    else if (array != nullptr)
        object->texture.texels = texels_of(*array);
    if (view != nullptr) {
        check_view(*array, *view);
        apply_view(object->texture.texels, *array, *view);
        for (std::uint32_t i = 1; i < object->texture.levels; ++i)
            apply_view(object->texture.smaller[i - 1], *array, *view);
    }
    set_sampling(object->texture, sampling, resource.resType == CU_RESOURCE_TYPE_LINEAR,
                 array != nullptr && array->has(CUDA_ARRAY3D_CUBEMAP));
    object->resource = resource;
    object->sampling = sampling;
    if (view != nullptr) object->view = *view;
    object->context = context.weak_from_this();
    textures().add(object);
    return object;
}

std::shared_ptr<SurfaceObject> create_surface(Context& context, const CUDA_RESOURCE_DESC& resource) {
    require(resource.flags == 0 && resource.resType == CU_RESOURCE_TYPE_ARRAY, CUDA_ERROR_INVALID_VALUE);
    const auto array = as_value([&] { return checked_array(resource.res.array.hArray); });
    require(array->has(CUDA_ARRAY3D_SURFACE_LDST), CUDA_ERROR_INVALID_VALUE);
    auto object = std::make_shared<SurfaceObject>();
    object->surface.texels = texels_of(*array);
    object->resource = resource;
    object->context = context.weak_from_this();
    surfaces().add(object);
    return object;
}

std::shared_ptr<TextureObject> checked_texture(CUtexObject handle) {
    auto object = textures().find(reinterpret_cast<void*>(handle));
    require(object != nullptr, CUDA_ERROR_INVALID_VALUE);
    return object;
}

std::shared_ptr<SurfaceObject> checked_surface(CUsurfObject handle) {
    auto object = surfaces().find(reinterpret_cast<void*>(handle));
    require(object != nullptr, CUDA_ERROR_INVALID_VALUE);
    return object;
}

void destroy_texture(Context& context, CUtexObject handle) {
    const auto object = textures().remove(reinterpret_cast<void*>(handle));
    require(object != nullptr, CUDA_ERROR_INVALID_VALUE);
    destroy(context, object, object->texture.mark);
}

void destroy_surface(Context& context, CUsurfObject handle) {
    const auto object = surfaces().remove(reinterpret_cast<void*>(handle));
    require(object != nullptr, CUDA_ERROR_INVALID_VALUE);
    destroy(context, object, object->surface.mark);
}

void forget_textures(const Context& context) {
    const auto of_context = [&](const auto& object) { return object.context.lock().get() == &context; };
    textures().remove_if(of_context);
    surfaces().remove_if(of_context);
}

}  // namespace simcuda::driver

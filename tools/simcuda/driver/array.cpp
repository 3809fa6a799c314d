#include "tools/simcuda/driver/array.h"

#include <algorithm>
#include <bit>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/handles.h"

namespace simcuda::driver {
namespace {

constexpr std::size_t kRowAlignment = 64;  // bytes

Handles<Array>& arrays() {
    static auto& handles = *new Handles<Array>;
    return handles;
}

Handles<MipmappedArray>& mipmapped_arrays() {
    static auto& handles = *new Handles<MipmappedArray>;
    return handles;
}

// The largest extent of each kind of array, by the device's attributes. 0: the kind has no such dimension.
struct Limits {
    CUdevice_attribute width, height, depth;
};

constexpr auto kNone = static_cast<CUdevice_attribute>(0);

Limits limits_of(const CUDA_ARRAY3D_DESCRIPTOR& d) {
    const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    if ((d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
        if (!layered)
            return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
                    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, kNone};
        return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS};
    }
    if (layered && d.Height == 0)
        return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, kNone,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS};
    if (layered)
        return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS};
    if (d.Depth != 0)
        return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH};
    if (d.Height != 0)
        return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
                kNone};
    return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, kNone, kNone};
}

void check(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& d) {
    constexpr unsigned kNotSimulated =
        CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_DEPTH_TEXTURE;
    constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT |
                                CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
    require((d.Flags & ~(kKnown | kNotSimulated)) == 0, CUDA_ERROR_INVALID_VALUE);
    require((d.Flags & kNotSimulated) == 0, CUDA_ERROR_NOT_SUPPORTED);
    checked_channel_bytes(d.Format);
    require(d.NumChannels == 1 || d.NumChannels == 2 || d.NumChannels == 4, CUDA_ERROR_INVALID_VALUE);
    require(d.Width != 0, CUDA_ERROR_INVALID_VALUE);
    const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0, cube = (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
    if (cube) {
        require(d.Width == d.Height && (layered ? d.Depth != 0 && d.Depth % 6 == 0 : d.Depth == 6),
                CUDA_ERROR_INVALID_VALUE);
    } else if (layered) {
        require(d.Depth != 0, CUDA_ERROR_INVALID_VALUE);
    } else {
        require(d.Height != 0 || d.Depth == 0, CUDA_ERROR_INVALID_VALUE);
    }
    require((d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) == 0 || (d.Height != 0 && d.Depth == 0),
            CUDA_ERROR_INVALID_VALUE);
    const Limits limits = limits_of(d);
    const auto fits = [&](std::size_t extent, CUdevice_attribute limit) {
        return limit == kNone || extent <= static_cast<std::size_t>(device_attribute(device, limit));
    };
    require(fits(d.Width, limits.width) && fits(d.Height, limits.height) && fits(d.Depth, limits.depth),
            CUDA_ERROR_INVALID_VALUE);
}

std::shared_ptr<Array> allocate(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
    auto array = std::make_shared<Array>();
    array->descriptor = descriptor;
    array->element_bytes = channel_bytes(descriptor.Format) * descriptor.NumChannels;
    array->pitch = round_up(array->row_bytes(), kRowAlignment);
    array->memory =
        allocate_device(context, array->pitch * array->rows() * array->slices(), Region::Kind::Internal);
    arrays().add(array);
    return array;
}

void release(const std::shared_ptr<Array>& array) {
    if (arrays().remove(array.get()) == nullptr) return;
    if (memory_map().remove(array->memory->address) != nullptr) dispose(*array->memory);
}

CUDA_ARRAY3D_DESCRIPTOR halved(CUDA_ARRAY3D_DESCRIPTOR d) {
    const auto half = [](std::size_t& extent) {
        if (extent != 0) extent = std::max<std::size_t>(extent / 2, 1);
    };
    half(d.Width);
    half(d.Height);
    if ((d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) half(d.Depth);
    return d;
}

bool of_context(const Array& array, const Context& context) {
    return array.memory->context.lock().get() == &context;
}

}  // namespace

unsigned checked_channel_bytes(CUarray_format format) {
    if (const unsigned bytes = channel_bytes(format)) return bytes;
    throw Failure{format >= CU_AD_FORMAT_UNORM_INT_101010_2 && format <= CU_AD_FORMAT_SNORM_INT16X4
                      ? CUDA_ERROR_NOT_SUPPORTED
                      : CUDA_ERROR_INVALID_VALUE};
}

std::shared_ptr<Array> create_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
    check(context.device(), descriptor);
    return allocate(context, descriptor);
}

std::shared_ptr<MipmappedArray> create_mipmapped(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                                 unsigned levels) {
    check(context.device(), descriptor);
    require((descriptor.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) == 0, CUDA_ERROR_INVALID_VALUE);
    std::size_t longest = std::max(descriptor.Width, descriptor.Height);
    if ((descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0)
        longest = std::max(longest, descriptor.Depth);
    const auto most = static_cast<unsigned>(std::bit_width(longest));
    auto mipmapped = std::make_shared<MipmappedArray>();
    CUDA_ARRAY3D_DESCRIPTOR level = descriptor;
    try {
        for (unsigned i = 0; i < std::clamp(levels, 1u, most); ++i, level = halved(level)) {
            mipmapped->levels.push_back(allocate(context, level));
            mipmapped->levels.back()->level = true;
        }
    } catch (const Failure&) {
        for (const auto& array : mipmapped->levels) release(array);
        throw;
    }
    mipmapped_arrays().add(mipmapped);
    return mipmapped;
}

std::shared_ptr<Array> checked_array(CUarray handle) {
    auto array = arrays().find(handle);
    require(array != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return array;
}

std::shared_ptr<MipmappedArray> checked_mipmapped(CUmipmappedArray handle) {
    auto mipmapped = mipmapped_arrays().find(handle);
    require(mipmapped != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return mipmapped;
}

void destroy_array(CUarray handle) {
    const auto array = checked_array(handle);
    require(!array->level, CUDA_ERROR_INVALID_HANDLE);
    finish_work_on(*array->memory);
    release(array);
}

void destroy_mipmapped(CUmipmappedArray handle) {
    const auto mipmapped = checked_mipmapped(handle);
    finish_work_on(*mipmapped->levels.front()->memory);
    mipmapped_arrays().remove(handle);
    for (const auto& array : mipmapped->levels) release(array);
}

std::shared_ptr<Array> array_at(std::uint64_t address) {
    const RegionPtr region = memory_map().find(address);
    if (region == nullptr || region->kind != Region::Kind::Internal) return nullptr;
    const auto found =
        arrays().select([&](const Array& array) { return array.memory->address == region->address; });
    return found.empty() ? nullptr : found.front();
}

void forget_arrays(const Context& context) {
    mipmapped_arrays().remove_if(
        [&](const MipmappedArray& mipmapped) { return of_context(*mipmapped.levels.front(), context); });
    arrays().remove_if([&](const Array& array) { return of_context(array, context); });
}

}  // namespace simcuda::driver

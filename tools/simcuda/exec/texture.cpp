// Coordinates to texels, and texels to what an instruction returns.
#include "tools/simcuda/exec/texture.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace simcuda::exec {
namespace {

using Index = std::int64_t;
constexpr Index kOutside = -1;

// f32 of the bits of an f16.
float widen(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
    const std::uint32_t magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    const float value = std::ldexp(std::bit_cast<float>(magnitude << 13), 112);
    return std::copysign(value, std::bit_cast<float>(sign | 0x3f800000));
}

bool gives_floats(const Texture& texture) {
    return texture.texels.kind == ChannelKind::Float || texture.normalized_reads;
}

// The index that stands for `index` in a dimension of `extent` elements.
Index resolve(AddressMode mode, bool normalized, Index index, Index extent) {
    if (index >= 0 && index < extent) return index;
    if (mode == AddressMode::Border) return kOutside;
    if (!normalized || mode == AddressMode::Clamp) return std::clamp<Index>(index, 0, extent - 1);
    const Index period = mode == AddressMode::Mirror ? 2 * extent : extent;
    const Index folded = (index % period + period) % period;
    return folded < extent ? folded : period - 1 - folded;
}

std::uint32_t channel_bits(const Texture& texture, const std::uint8_t* element, std::uint32_t channel) {
    const Texels& image = texture.texels;  // all levels are of one format
    if (channel >= image.channels) return 0;
    std::uint32_t raw = 0;
    std::memcpy(&raw, element + std::size_t{channel} * image.channel_bytes, image.channel_bytes);
    const unsigned spare = 32 - 8u * image.channel_bytes;
    switch (image.kind) {
        case ChannelKind::Float:
            return image.channel_bytes == 2
                       ? std::bit_cast<std::uint32_t>(widen(static_cast<std::uint16_t>(raw)))
                       : raw;
        case ChannelKind::Unsigned:
            if (!texture.normalized_reads) return raw;
            return std::bit_cast<std::uint32_t>(static_cast<float>(raw) / static_cast<float>(~0u >> spare));
        case ChannelKind::Signed: {
            const auto value = static_cast<std::int32_t>(raw << spare) >> spare;
            if (!texture.normalized_reads) return static_cast<std::uint32_t>(value);
            const auto most = static_cast<float>(~0u >> spare >> 1);
            return std::bit_cast<std::uint32_t>(std::max(static_cast<float>(value) / most, -1.0f));
        }
    }
    return 0;
}

using Texel = std::array<std::uint32_t, 4>;

// A position in the image: indices in x and y, and the slice, resolved.
Texel load(const Texture& texture, const Texels& image, Index x, Index y, Index slice) {
    Texel texel{};
    const bool outside = x == kOutside || y == kOutside || slice == kOutside;
    const auto* element = static_cast<const std::uint8_t*>(
        to_host(image.base + static_cast<std::uint64_t>(slice) * image.slice_bytes +
                static_cast<std::uint64_t>(y) * image.row_bytes +
                static_cast<std::uint64_t>(x) * image.element_bytes()));
    for (std::uint32_t c = 0; c < 4; ++c)
        texel[c] =
            outside ? std::bit_cast<std::uint32_t>(texture.border[c]) : channel_bits(texture, element, c);
    return texel;
}

// What a fetch reads: a box of two texels a dimension, and the weight of the upper one in each.
struct Footprint {
    std::uint32_t dimensions = 1;
    Index first[3] = {};
    float weight[3] = {};
    Index slice = 0;  // of images of fewer than three dimensions
};

Index extent_of(const Texels& image, std::uint32_t dimension) {
    return dimension == 0 ? image.width : dimension == 1 ? image.height : image.depth;
}

Texel texel_at(const Texture& texture, const Texels& image, const Footprint& footprint,
               std::uint32_t corner) {
    Index index[3] = {0, 0, footprint.slice};
    for (std::uint32_t d = 0; d < footprint.dimensions; ++d)
        index[d] = resolve(texture.addressing[d], texture.normalized_coordinates,
                           footprint.first[d] + (corner >> d & 1), extent_of(image, d));
    return load(texture, image, index[0], index[1], index[2]);
}

// The coordinate in units of elements.
float scaled(const Texture& texture, const Texels& image, float at, std::uint32_t dimension) {
    if (std::isnan(at)) return 0;
    if (!texture.normalized_coordinates) return at;
    if (texture.addressing[dimension] == AddressMode::Wrap) at -= std::floor(at);
    return at * static_cast<float>(extent_of(image, dimension));
}

Index whole(float position) {
    return static_cast<Index>(std::clamp(std::floor(position), -0x1p30f, 0x1p30f));
}

// Between elements: centers lie at halves, and a weight has 8 bits.
void place_between(Footprint& footprint, std::uint32_t dimension, float position) {
    position = std::clamp(position, -0x1p30f, 0x1p30f) - 0.5f;
    footprint.first[dimension] = whole(position);
    footprint.weight[dimension] = std::floor((position - std::floor(position)) * 256 + 0.5f) / 256;
}

// The face of a cube a direction meets, and where on it.
std::uint32_t face_of(const std::uint32_t at[3], float& s, float& t) {
    const auto x = std::bit_cast<float>(at[0]), y = std::bit_cast<float>(at[1]),
               z = std::bit_cast<float>(at[2]);
    const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
    std::uint32_t face;
    float m;
    if (ax >= ay && ax >= az) {
        face = std::signbit(x) ? 1 : 0, m = ax, s = std::signbit(x) ? z : -z, t = -y;
    } else if (ay >= az) {
        face = std::signbit(y) ? 3 : 2, m = ay, s = x, t = std::signbit(y) ? -z : z;
    } else {
        face = std::signbit(z) ? 5 : 4, m = az, s = std::signbit(z) ? -x : x, t = -y;
    }
    s = (s / m + 1) / 2;
    t = (t / m + 1) / 2;
    return face;
}

Index layer_of(const Access& access, const Texels& image, std::uint32_t wanted) {
    if (!access.layered) return 0;
    const Index layers = access.cube ? image.depth / 6 : image.depth;
    return std::clamp<Index>(wanted, 0, std::max<Index>(layers - 1, 0));
}

Texel blend(const Texture& texture, const Texels& image, const Footprint& footprint) {
    double sum[4] = {};
    for (std::uint32_t corner = 0; corner < 1u << footprint.dimensions; ++corner) {
        double share = 1;
        for (std::uint32_t d = 0; d < footprint.dimensions; ++d) {
            const auto weight = static_cast<double>(footprint.weight[d]);
            share *= corner >> d & 1 ? weight : 1 - weight;
        }
        // A texel of no weight is not read into the sum: it may be an infinity.
        if (share == 0) continue;
        const Texel texel = texel_at(texture, image, footprint, corner);
        for (std::uint32_t c = 0; c < 4; ++c)
            sum[c] += share * static_cast<double>(std::bit_cast<float>(texel[c]));
    }
    Texel result;
    for (std::uint32_t c = 0; c < 4; ++c)
        result[c] = std::bit_cast<std::uint32_t>(static_cast<float>(sum[c]));
    return result;
}

Texel sample(const Texture& texture, const Texels& image, const Access& access, const std::uint32_t at[4]) {
    Footprint footprint{.dimensions = access.cube ? 2 : access.dimensions};
    footprint.slice = layer_of(access, image, at[3]);
    float position[3] = {};
    if (access.cube) footprint.slice = footprint.slice * 6 + face_of(at, position[0], position[1]);
    const bool filters = texture.filters && gives_floats(texture) && !access.integer_coordinates;
    for (std::uint32_t d = 0; d < footprint.dimensions; ++d) {
        if (access.integer_coordinates) {
            footprint.first[d] = static_cast<std::int32_t>(at[d]);
            continue;
        }
        const float where = access.cube ? position[d] * static_cast<float>(extent_of(image, d))
                                        : scaled(texture, image, std::bit_cast<float>(at[d]), d);
        if (filters)
            place_between(footprint, d, where);
        else
            footprint.first[d] = whole(where);
    }
    return filters ? blend(texture, image, footprint) : texel_at(texture, image, footprint, 0);
}

// Between its bounds, and among the levels there are.
float bounded(const Texture& texture, float level) {
    if (std::isnan(level)) level = 0;
    level = std::min(std::max(level + texture.level_bias, texture.least_level), texture.most_level);
    return std::clamp(level, 0.0f, static_cast<float>(texture.levels - 1));
}

}  // namespace

void fetch_texture(const Texture& texture, const Access& access, const std::uint32_t at[4],
                   std::uint32_t texel[4], float level) {
    const auto from = [&](float index) {
        return sample(texture, texture.level(static_cast<std::uint32_t>(index)), access, at);
    };
    Texel result;
    if (texture.levels == 1) {
        result = from(0);
    } else if (const float wanted = bounded(texture, level); !texture.filters_levels) {
        result = from(std::floor(wanted + 0.5f));
    } else {
        const float lower = std::floor(wanted);
        const float weight = std::floor((wanted - lower) * 256 + 0.5f) / 256;
        result = from(weight == 1 ? lower + 1 : lower);
        if (weight > 0 && weight < 1) {
            const Texel next = from(lower + 1);
            for (std::uint32_t c = 0; c < 4; ++c) {
                const double near = static_cast<double>(std::bit_cast<float>(result[c])),
                             far = static_cast<double>(std::bit_cast<float>(next[c])),
                             part = static_cast<double>(weight);
                result[c] = std::bit_cast<std::uint32_t>(static_cast<float>((1 - part) * near + part * far));
            }
        }
    }
    std::copy(result.begin(), result.end(), texel);
}

float level_of(const Texture& texture, const Access& access, const float along_x[3], const float along_y[3]) {
    const auto length = [&](const float step[3]) {
        float sum = 0;
        for (std::uint32_t d = 0; d < access.dimensions; ++d) {
            const float texels =
                step[d] *
                (texture.normalized_coordinates ? static_cast<float>(extent_of(texture.texels, d)) : 1.0f);
            sum += texels * texels;
        }
        return std::sqrt(sum);
    };
    return std::log2(std::max(length(along_x), length(along_y)));
}

void gather_texture(const Texture& texture, std::uint32_t channel, const std::uint32_t at[4],
                    std::uint32_t texels[4]) {
    Footprint footprint{.dimensions = 2};
    for (std::uint32_t d = 0; d < 2; ++d)
        place_between(footprint, d, scaled(texture, texture.texels, std::bit_cast<float>(at[d]), d));
    static constexpr std::uint32_t kCorners[] = {2, 3, 1, 0};
    for (std::uint32_t i = 0; i < 4; ++i)
        texels[i] = texel_at(texture, texture.texels, footprint, kCorners[i])[channel & 3];
}

void* surface_element(const Surface& surface, const Access& access, Boundary boundary,
                      const std::uint32_t at[4], std::uint32_t bytes) {
    const Texels& image = surface.texels;
    const Index limit[3] = {Index{image.width} * image.element_bytes() - bytes, Index{image.height} - 1,
                            Index{image.depth} - 1};
    // x, y and the slice: the third coordinate, or the layer.
    const bool has_slice = access.dimensions == 3 || access.layered;
    const Index wanted[3] = {static_cast<std::int32_t>(at[0]),
                             access.dimensions > 1 ? static_cast<std::int32_t>(at[1]) : 0,
                             has_slice ? static_cast<std::int32_t>(at[access.layered ? 3 : 2]) : 0};
    Index index[3];
    for (std::size_t d = 0; d < 3; ++d) {
        index[d] = boundary == Boundary::Clamp ? std::clamp<Index>(wanted[d], 0, std::max<Index>(limit[d], 0))
                                               : wanted[d];
        if (index[d] < 0 || index[d] > limit[d]) return nullptr;
    }
    return to_host(image.base + static_cast<std::uint64_t>(index[2]) * image.slice_bytes +
                   static_cast<std::uint64_t>(index[1]) * image.row_bytes +
                   static_cast<std::uint64_t>(index[0]));
}

}  // namespace simcuda::exec

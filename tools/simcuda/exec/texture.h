// Texture and surface objects as kernels see them. The 64-bit handle of one is the host address of its
// descriptor, which whoever creates the object keeps alive and unchanged until no kernel uses it.
//
// Sampling is that of the CUDA programming guide's appendix on texture fetching: a coordinate's fraction is a
// weight of 8 bits, and so is the level's. A cube's faces are not filtered across their edges.
#pragma once

#include <cstdint>

#include "tools/simcuda/address.h"

namespace simcuda::exec {

enum class ChannelKind : std::uint8_t { Unsigned, Signed, Float };

// In the order of CUaddress_mode.
enum class AddressMode : std::uint8_t { Wrap, Clamp, Mirror, Border };

// Elements in device memory, rows one behind another.
struct Texels {
    DeviceAddress base = 0;
    std::uint32_t width = 1;  // elements
    std::uint32_t height = 1;
    std::uint32_t depth = 1;  // slices of a 3D image, layers of a layered one, faces of cubes
    std::uint64_t row_bytes = 0;
    std::uint64_t slice_bytes = 0;
    ChannelKind kind = ChannelKind::Float;
    std::uint8_t channel_bytes = 4;  // 1, 2 or 4; of floats 2 or 4
    std::uint8_t channels = 1;       // 1, 2 or 4

    std::uint32_t element_bytes() const { return std::uint32_t{channel_bytes} * channels; }
};

// What tells a handle from any other number: a descriptor's first member.
inline constexpr std::uint64_t kTextureMark = 0x5443454a424f5854;
inline constexpr std::uint64_t kSurfaceMark = 0x5443454a424f5553;

struct Texture {
    std::uint64_t mark = kTextureMark;
    Texels texels;
    // Per dimension. Wrap and Mirror need normalized coordinates, else they act as Clamp. Linear memory,
    // where what is read out of bounds is zero, is Border.
    AddressMode addressing[3] = {AddressMode::Clamp, AddressMode::Clamp, AddressMode::Clamp};
    bool filters = false;                 // linear; only where reads give floats
    bool normalized_coordinates = false;  // 0 to 1 spans the image
    bool normalized_reads = false;        // integers of 1 or 2 bytes read as floats from 0 or -1 to 1
    float border[4] = {};

    // Of mipmapped images the further levels, each half as large as the one before. A fetch reads that
    // nearest to the level it asks for, or from the two around it.
    static constexpr std::uint32_t kMaxLevels = 20;
    std::uint32_t levels = 1;
    Texels smaller[kMaxLevels - 1];
    bool filters_levels = false;  // linear; only where reads give floats
    float level_bias = 0, least_level = 0, most_level = 0;

    const Texels& level(std::uint32_t index) const { return index == 0 ? texels : smaller[index - 1]; }
};

struct Surface {
    std::uint64_t mark = kSurfaceMark;
    Texels texels;
};

inline std::uint64_t handle_of(const Texture& texture) {
    return reinterpret_cast<std::uint64_t>(&texture);
}
inline std::uint64_t handle_of(const Surface& surface) {
    return reinterpret_cast<std::uint64_t>(&surface);
}

// How an instruction addresses an image. Coordinates are x, y, z and the layer; those beyond `dimensions` are
// ignored.
struct Access {
    std::uint32_t dimensions = 2;
    bool layered = false;
    bool cube = false;  // x, y, z are a direction
    bool integer_coordinates = false;
};

// Reads one texel, filtered if the texture asks for it. `at` and `texel` are 32-bit values or the bits of
// f32; channels the image lacks are zero. `level` is that of the image which is asked for, before the
// texture's bias and bounds. Touches device memory, so faults where that is not accessible.
void fetch_texture(const Texture& texture, const Access& access, const std::uint32_t at[4],
                   std::uint32_t texel[4], float level = 0);

// The level whose texels are as far apart as two fetches are, in the direction in which that is more: by how
// much the coordinates differ from one to the next in each of two directions.
float level_of(const Texture& texture, const Access& access, const float along_x[3], const float along_y[3]);

// Channel `channel` of the four texels that a linear filter would use at (x, y), counter-clockwise from the
// lower left.
void gather_texture(const Texture& texture, std::uint32_t channel, const std::uint32_t at[4],
                    std::uint32_t texels[4]);

// What a surface access out of bounds does.
enum class Boundary : std::uint8_t { Trap, Clamp, Zero };

// The host address of `bytes` bytes at x (in bytes), y, z or layer. Null when they are out of bounds: then a
// load gives zero and a store does nothing, or with Boundary::Trap the access is a fault.
void* surface_element(const Surface& surface, const Access& access, Boundary boundary,
                      const std::uint32_t at[4], std::uint32_t bytes);

}  // namespace simcuda::exec

// Texture fetches and surface accesses, over descriptors made here: values worked out from the CUDA
// programming guide's formulas.
#include "tools/simcuda/exec/texture.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::AddressMode;
using exec::ChannelKind;

std::uint32_t word_of(float value) {
    return std::bit_cast<std::uint32_t>(value);
}

using Values = std::array<float, 4>;

Values fetch(const exec::Texture& texture, const exec::Access& access, float x, float y = 0, float z = 0,
             std::uint32_t layer = 0) {
    const std::uint32_t at[4] = {word_of(x), word_of(y), word_of(z), layer};
    std::uint32_t texel[4];
    exec::fetch_texture(texture, access, at, texel);
    Values values;
    for (std::size_t i = 0; i < 4; ++i) values[i] = std::bit_cast<float>(texel[i]);
    return values;
}

// width x height x depth floats, each 100 z + 10 y + x, rows padded.
struct Floats {
    Floats(std::uint32_t width, std::uint32_t height, std::uint32_t depth)
        : memory(std::uint64_t{depth} * height * (width + 3) * 4) {
        texture.texels = {.base = memory.address(),
                          .width = width,
                          .height = height,
                          .depth = depth,
                          .row_bytes = std::uint64_t{width + 3} * 4,
                          .slice_bytes = std::uint64_t{width + 3} * 4 * height};
        for (std::uint32_t z = 0; z < depth; ++z)
            for (std::uint32_t y = 0; y < height; ++y)
                for (std::uint32_t x = 0; x < width; ++x)
                    memory.as<float>()[(z * height + y) * (width + 3) + x] =
                        static_cast<float>(100 * z + 10 * y + x);
    }
    DeviceMemory memory;
    exec::Texture texture;
};

constexpr exec::Access k1d{.dimensions = 1};
constexpr exec::Access kFlat{.dimensions = 2};
constexpr exec::Access k3d{.dimensions = 3};

TEST_CASE("texture: a point fetch takes the texel a coordinate falls in") {
    const Floats grid(5, 4, 3);
    CHECK(fetch(grid.texture, k1d, 2.99f)[0] == 2);
    CHECK(fetch(grid.texture, kFlat, 3.0f, 1.5f)[0] == 13);
    CHECK(fetch(grid.texture, k3d, 0.5f, 3.25f, 2.75f)[0] == 230);
    CHECK(fetch(grid.texture, kFlat, 3.0f, 1.5f) == Values{13, 0, 0, 0});
    exec::Texture normalized = grid.texture;
    normalized.normalized_coordinates = true;
    CHECK(fetch(normalized, kFlat, 0.7f, 0.26f)[0] == 13);
    // 3/5 of 5 is 3, although neither is exact.
    CHECK(fetch(normalized, kFlat, 0.6f, 0)[0] == 3);
}

TEST_CASE("texture: coordinates out of bounds follow each dimension's addressing mode") {
    const Floats grid(5, 4, 1);
    exec::Texture texture = grid.texture;
    CHECK(fetch(texture, kFlat, -7, 9)[0] == 30);
    CHECK(fetch(texture, kFlat, 1e30f, -1e30f)[0] == 4);
    texture.addressing[0] = AddressMode::Border;
    texture.border[0] = 77;
    texture.border[3] = 5;
    CHECK(fetch(texture, kFlat, -0.5f, 9) == Values{77, 0, 0, 5});
    CHECK(fetch(texture, kFlat, 5.0f, 0)[0] == 77);
    CHECK(fetch(texture, kFlat, 4.9f, 9)[0] == 34);

    texture.normalized_coordinates = true;
    texture.addressing[0] = AddressMode::Wrap;
    texture.addressing[1] = AddressMode::Mirror;
    // x: 1.3 wraps to 0.3, texel 1; y: 1.1 mirrors to 0.9, texel 3.
    CHECK(fetch(texture, kFlat, 1.3f, 1.1f)[0] == 31);
    // x: -0.1 wraps to 0.9, texel 4; y: -0.3 mirrors to 0.3, texel 1.
    CHECK(fetch(texture, kFlat, -0.1f, -0.3f)[0] == 14);
    // y: 2.3 is the second period's 0.3.
    CHECK(fetch(texture, kFlat, 0, 2.3f)[0] == 10);
    // Without normalized coordinates both clamp.
    texture.normalized_coordinates = false;
    CHECK(fetch(texture, kFlat, 6, -2)[0] == 4);
}

TEST_CASE("texture: a linear fetch weighs by 8 bits of fraction") {
    const Floats grid(5, 4, 3);
    exec::Texture texture = grid.texture;
    texture.filters = true;
    CHECK(fetch(texture, k1d, 2.5f)[0] == 2);
    CHECK(fetch(texture, k1d, 3.0f)[0] == 2.5f);
    // 0.3 has the weight 77 / 256.
    CHECK(fetch(texture, k1d, 2.8f)[0] == 2 + 77.0f / 256);
    CHECK(fetch(texture, kFlat, 2.0f, 2.0f)[0] == 16.5f);
    CHECK(fetch(texture, k3d, 1.75f, 1.0f, 1.5f)[0] == 100 + 5 + 1.25f);
    // Beyond the outermost centers only the edge is left, or the border.
    CHECK(fetch(texture, k1d, 0.1f)[0] == 0);
    CHECK(fetch(texture, k1d, 4.9f)[0] == 4);
    texture.addressing[0] = AddressMode::Border;
    texture.border[0] = 8;
    CHECK(fetch(texture, k1d, 0.0f)[0] == 4);
    CHECK(fetch(texture, k1d, 5.0f)[0] == 6);
    texture.normalized_coordinates = true;
    texture.addressing[0] = AddressMode::Wrap;
    CHECK(fetch(texture, k1d, 0.0f)[0] == 2);
    CHECK(fetch(texture, k1d, 1.0f)[0] == 2);
    // An infinity beside an exact hit stays out of the sum.
    grid.memory.as<float>()[3] = std::bit_cast<float>(0x7f800000);
    texture.normalized_coordinates = false;
    CHECK(fetch(texture, k1d, 2.5f)[0] == 2);
}

TEST_CASE("layers and cubes: the layer clamps, the largest component picks the face") {
    const Floats layers(4, 4, 12);
    const exec::Access layered{.dimensions = 2, .layered = true};
    CHECK(fetch(layers.texture, layered, 1, 2, 0, 5)[0] == 521);
    CHECK(fetch(layers.texture, layered, 1, 2, 0, 40)[0] == 1121);
    CHECK(fetch(layers.texture, {.dimensions = 1, .layered = true}, 3, 0, 0, 2)[0] == 203);

    exec::Texture cube = layers.texture;
    cube.normalized_coordinates = true;
    const exec::Access direction{.dimensions = 3, .cube = true};
    // Face +x: s = -z, t = -y, so (1, .1, -.6) is at s = .8, t = .45: texel (3, 1).
    CHECK(fetch(cube, direction, 1, 0.1f, -0.6f)[0] == 13);
    CHECK(fetch(cube, direction, -2, 0.2f, -1.2f)[0] == 110);  // -x: s = z: .2, t = .45
    CHECK(fetch(cube, direction, 0.3f, 1, 0.6f)[0] == 232);    // +y: s = x: .65, t = z: .8
    CHECK(fetch(cube, direction, 0.3f, -1, 0.6f)[0] == 302);   // -y: t = -z: .2
    CHECK(fetch(cube, direction, 0.6f, -0.3f, 1)[0] == 423);   // +z: s = x: .8, t = -y: .65
    CHECK(fetch(cube, direction, 0.6f, -0.3f, -1)[0] == 520);  // -z: s = -x: .2
    const exec::Access second{.dimensions = 3, .layered = true, .cube = true};
    CHECK(fetch(cube, second, 0.6f, -0.3f, -1, 1)[0] == 1120);
}

TEST_CASE("texture: elements of every format") {
    const DeviceMemory memory(64);
    exec::Texture texture;
    texture.texels = {.base = memory.address(), .width = 4};
    const auto texel = [&](std::int32_t x) {
        const std::uint32_t at[4] = {static_cast<std::uint32_t>(x), 0, 0, 0};
        std::array<std::uint32_t, 4> result;
        exec::fetch_texture(texture, {.dimensions = 1, .integer_coordinates = true}, at, result.data());
        return result;
    };
    const auto format = [&](ChannelKind kind, std::uint8_t bytes, std::uint8_t channels) {
        texture.texels.kind = kind;
        texture.texels.channel_bytes = bytes;
        texture.texels.channels = channels;
    };
    const std::uint8_t bytes[] = {0, 0x7f, 0x80, 0xff, 1, 2, 3, 4};
    std::memcpy(memory.as<void>(), bytes, sizeof bytes);
    format(ChannelKind::Unsigned, 1, 4);
    CHECK(texel(0) == std::array<std::uint32_t, 4>{0, 0x7f, 0x80, 0xff});
    CHECK(texel(1) == std::array<std::uint32_t, 4>{1, 2, 3, 4});
    format(ChannelKind::Signed, 1, 4);
    CHECK(texel(0) == std::array<std::uint32_t, 4>{0, 0x7f, 0xffffff80, 0xffffffff});
    format(ChannelKind::Unsigned, 2, 2);
    CHECK(texel(0) == std::array<std::uint32_t, 4>{0x7f00, 0xff80, 0, 0});
    format(ChannelKind::Unsigned, 4, 1);
    CHECK(texel(1) == std::array<std::uint32_t, 4>{0x04030201, 0, 0, 0});
    texture.normalized_reads = true;
    format(ChannelKind::Unsigned, 1, 4);
    CHECK(texel(0) ==
          std::array<std::uint32_t, 4>{0, word_of(127 / 255.0f), word_of(128 / 255.0f), word_of(1)});
    format(ChannelKind::Signed, 1, 4);
    CHECK(texel(0) == std::array<std::uint32_t, 4>{0, word_of(1), word_of(-1), word_of(-1 / 127.0f)});
    format(ChannelKind::Signed, 2, 1);
    CHECK(texel(0)[0] == word_of(0x7f00 / 32767.0f));
    texture.normalized_reads = false;
    const std::uint16_t halves[] = {0x3c00, 0xc100, 0x0001, 0x8000, 0x7bff, 0xfc00, 0x7e00, 0x83ff};
    std::memcpy(memory.as<void>(), halves, sizeof halves);
    format(ChannelKind::Float, 2, 4);
    CHECK(texel(0) ==
          std::array<std::uint32_t, 4>{word_of(1), word_of(-2.5f), word_of(0x1p-24f), word_of(-0.0f)});
    CHECK(texel(1) ==
          std::array<std::uint32_t, 4>{word_of(65504), 0xff800000, 0x7fc00000, word_of(-0x3ffp-24f)});
}

TEST_CASE("texture: a gather reads one channel of the four texels of a linear filter") {
    const Floats grid(5, 4, 1);
    const std::uint32_t at[4] = {word_of(2.2f), word_of(2.9f)};
    std::array<std::uint32_t, 4> texels;
    exec::gather_texture(grid.texture, 0, at, texels.data());
    // x between 1 and 2, y between 2 and 3; from the lower left, counter-clockwise.
    CHECK(texels == std::array<std::uint32_t, 4>{word_of(31), word_of(32), word_of(22), word_of(21)});
    exec::gather_texture(grid.texture, 2, at, texels.data());
    CHECK(texels == std::array<std::uint32_t, 4>{});
}

TEST_CASE("texture: surface addresses are bytes in x; out of bounds they clamp or are none") {
    const Floats grid(5, 4, 3);
    const exec::Surface surface{.texels = grid.texture.texels};
    const auto value = [&](const exec::Access& access, exec::Boundary boundary, std::int32_t x,
                           std::int32_t y, std::int32_t z, std::int32_t layer) {
        const std::uint32_t at[4] = {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y),
                                     static_cast<std::uint32_t>(z), static_cast<std::uint32_t>(layer)};
        const void* element = exec::surface_element(surface, access, boundary, at, 4);
        return element ? *static_cast<const float*>(element) : -1.0f;
    };
    using enum exec::Boundary;
    CHECK(value(kFlat, Trap, 12, 3, 9, 9) == 33);
    CHECK(value(k3d, Zero, 0, 1, 2, 0) == 210);
    CHECK(value({.dimensions = 2, .layered = true}, Zero, 4, 1, 9, 1) == 111);
    CHECK(value(k1d, Zero, 8, 99, 0, 0) == 2);
    CHECK(value(kFlat, Zero, 20, 0, 0, 0) == -1);
    CHECK(value(kFlat, Trap, -4, 0, 0, 0) == -1);
    CHECK(value(kFlat, Zero, 0, 4, 0, 0) == -1);
    CHECK(value(k3d, Trap, 0, 0, 3, 0) == -1);
    CHECK(value(kFlat, Clamp, 200, -3, 0, 0) == 4);
    CHECK(value(k3d, Clamp, -1, 7, 9, 0) == 230);
}

// A kernel of one thread that leaves 16 words in its output.
Module image_module(std::string_view body) {
    return Module(fmt::format(R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 handle, .param .u64 out)
{{
    .reg .b64 %rd<9>; .reg .b32 %r<24>; .reg .b16 %rs<9>; .reg .f32 %f<24>;
    ld.param.u64 %rd1, [handle]; ld.param.u64 %rd2, [out];
    {}
    ret;
}})",
                              body));
}

std::array<float, 16> floats_of(const Module& module, std::uint64_t handle) {
    const DeviceMemory out(64);
    const Result result = run(module, "k", 1, 1, handle, out.address());
    REQUIRE_MESSAGE(result.outcome == exec::Outcome::Finished, result.message);
    std::array<float, 16> values;
    std::memcpy(values.data(), out.as<float>(), sizeof values);
    return values;
}

TEST_CASE("texture: texture instructions of every geometry") {
    const Floats grid(5, 4, 12);
    exec::Texture texture = grid.texture;
    texture.texels.kind = ChannelKind::Float;
    const auto point = floats_of(image_module(R"(
    tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {0f40200000}]; st.global.f32 [%rd2], %f1;
    mov.f32 %f5, 0f3FC00000; mov.f32 %f6, 0f40600000;
    tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}]; st.global.f32 [%rd2+4], %f1;
    tex.2d.v4.u32.f32 {%r5, %r6, %r7, %r8}, [%rd1, {%f6, %f5}]; st.global.u32 [%rd2+52], %r5;
    tex.level.2d.v4.f32.f32 {%f7, %f2, %f3, %f4}, [%rd1, {%f5, %f6}], 0f40400000; st.global.f32 [%rd2+48], %f7;
    tex.3d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6, %f6, %f6}]; st.global.f32 [%rd2+8], %f1;
    mov.u32 %r1, 7; mov.u32 %r2, 3; mov.u32 %r3, 1;
    tex.a1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %f6}]; st.global.f32 [%rd2+12], %f1;
    tex.a2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %f5, %f6, %f6}]; st.global.f32 [%rd2+16], %f1;
    tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r2}]; st.global.f32 [%rd2+20], %f1;
    tex.2d.v4.u32.s32 {%r5, %r6, %r7, %r8}, [%rd1, {%r2, %r3}]; st.global.u32 [%rd2+24], %r5;
    tex.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {0fBF800000, 0f00000000, 0f00000000, %f6}];
    st.global.f32 [%rd2+28], %f1;
    tex.acube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r3, 0fBF800000, 0f00000000, 0f00000000}];
    st.global.f32 [%rd2+32], %f1;
    tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f5}]; st.global.f32 [%rd2+36], %f1;
    st.global.f32 [%rd2+40], %f4;
    txq.width.b32 %r10, [%rd1]; txq.height.b32 %r11, [%rd1]; txq.depth.b32 %r12, [%rd1];
    mad.lo.u32 %r10, %r10, 10, %r11; mad.lo.u32 %r10, %r10, 10, %r12; cvt.rn.f32.u32 %f1, %r10;
    st.global.f32 [%rd2+44], %f1;)"),
                                 handle_of(texture));
    CHECK(std::vector<float>(point.begin(), point.begin() + 14) ==
          std::vector<float>{2, 31, 331, 703, 731, 3, 13, 122, 722, 21, 11, 552, 31, 13});
    texture.filters = true;
    const auto linear = floats_of(image_module(R"(
    tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {0f3FA00000, 0f40000000}]; st.global.f32 [%rd2], %f1;)"),
                                  handle_of(texture));
    CHECK(linear[0] == 15.75f);
}

TEST_CASE("texture: surface loads and stores, and what they do out of bounds") {
    const Floats grid(8, 4, 3);
    const exec::Surface surface{.texels = grid.texture.texels};
    const auto loaded = floats_of(image_module(R"(
    mov.u32 %r1, 8; mov.u32 %r2, 1; mov.u32 %r3, 2; mov.u32 %r4, 99;
    suld.b.1d.b32.trap {%r5}, [%rd1, {%r1}]; st.global.u32 [%rd2], %r5;
    suld.b.2d.b32.trap %r5, [%rd1, {%r1, %r2}]; st.global.u32 [%rd2+4], %r5;
    suld.b.3d.v2.b32.trap {%r5, %r6}, [%rd1, {%r1, %r2, %r3, %r3}]; st.global.v2.u32 [%rd2+8], {%r5, %r6};
    suld.b.a2d.v4.b32.trap {%r5, %r6, %r7, %r8}, [%rd1, {%r3, %r1, %r2, %r2}];
    st.global.v4.u32 [%rd2+16], {%r5, %r6, %r7, %r8};
    suld.b.2d.b32.zero {%r5}, [%rd1, {%r4, %r2}]; st.global.u32 [%rd2+32], %r5;
    suld.b.2d.b32.clamp {%r5}, [%rd1, {%r4, %r2}]; st.global.u32 [%rd2+36], %r5;
    suld.b.a1d.b64.trap {%rd5}, [%rd1, {%r2, %r1}]; st.global.u64 [%rd2+40], %rd5;
    sust.b.2d.b32.trap [%rd1, {%r1, %r2}], {0f42F60000};
    sust.b.3d.v2.b32.zero [%rd1, {%r1, %r3, %r2, %r2}], {%r5, %r5};
    sust.b.2d.b32.zero [%rd1, {%r4, %r2}], %r5;
    mov.u16 %rs1, 0x4142; sust.b.1d.b16.trap [%rd1, {%r3}], %rs1;
    suq.height.b32 %r9, [%rd1]; cvt.rn.f32.u32 %f1, %r9; st.global.f32 [%rd2+48], %f1;)"),
                                  handle_of(surface));
    CHECK(std::vector<float>(loaded.begin(), loaded.begin() + 13) ==
          std::vector<float>{2, 12, 212, 213, 212, 213, 214, 215, 0, 17, 102, 103, 4});
    const auto* memory = grid.memory.as<float>();
    CHECK(memory[11 + 2] == 123);
    CHECK(memory[(4 + 2) * 11 + 2] == 17);
    CHECK(memory[(4 + 2) * 11 + 3] == 17);
    CHECK(word_of(memory[0]) == 0x41420000);
    CHECK(memory[11 + 7] == 17);

    const DeviceMemory out(64);
    const Module outside = image_module("mov.u32 %r1, 32; sust.b.1d.b32.trap [%rd1, {%r1}], %r1;");
    CHECK(run(outside, "k", 1, 1, handle_of(surface), out.address()).outcome ==
          exec::Outcome::IllegalAddress);
}

TEST_CASE("texture: a number that is no handle is a fault") {
    const Module module = image_module("tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {0f00000000}];");
    const DeviceMemory out(64);
    const exec::Surface surface;
    for (std::uint64_t handle :
         {std::uint64_t{0}, std::uint64_t{1} << 60, handle_of(surface), handle_of(surface) + 1})
        CHECK(run(module, "k", 1, 1, handle, out.address()).outcome == exec::Outcome::IllegalAddress);
}

}  // namespace
}  // namespace simcuda::testing

// Mipmapped images: which level a fetch reads, and what lies between two.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tests/ptx/device.h"
#include "tools/simcuda/exec/texture.h"

namespace simcuda::testing {
namespace {

using exec::AddressMode;

// Levels of 8 x 8, 4 x 4, 2 x 2 and one texel; each is 1000 times its level, and 10 y + x.
struct Pyramid {
    Pyramid() {
        texture.levels = 4;
        texture.normalized_coordinates = true;
        texture.most_level = 100;
        for (std::uint32_t level = 0; level < 4; ++level) {
            const std::uint32_t side = 8 >> level;
            memory.push_back(std::make_unique<DeviceMemory>(side * side * 4));
            exec::Texels& texels = level ? texture.smaller[level - 1] : texture.texels;
            texels = {.base = memory.back()->address(),
                      .width = side,
                      .height = side,
                      .row_bytes = side * 4,
                      .slice_bytes = side * side * 4};
            for (std::uint32_t i = 0; i < side * side; ++i) {
                const std::uint32_t row = i / side;
                memory.back()->as<float>()[i] = static_cast<float>(1000 * level + 10 * row + i % side);
            }
        }
    }
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    exec::Texture texture;
};

constexpr exec::Access k2d{.dimensions = 2};

float fetch(const exec::Texture& texture, float x, float y, float level) {
    const std::uint32_t at[4] = {std::bit_cast<std::uint32_t>(x), std::bit_cast<std::uint32_t>(y), 0, 0};
    std::uint32_t texel[4];
    exec::fetch_texture(texture, k2d, at, texel, level);
    return std::bit_cast<float>(texel[0]);
}

TEST_CASE("mipmap: of points the nearest level is read, with its own extent") {
    const Pyramid pyramid;
    // 0.7 of 8, 4, 2 and 1, and 0.3 of them.
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, 0) == 25);
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, 0.49f) == 25);
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, 0.51f) == 1012);
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, 1) == 1012);
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, 2) == 2001);
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, 3) == 3000);
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, 50) == 3000);
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, -50) == 25);
    CHECK(fetch(pyramid.texture, 0.7f, 0.3f, std::numeric_limits<float>::quiet_NaN()) == 25);
}

TEST_CASE("mipmap: a bias is added before a level is held between its bounds") {
    Pyramid pyramid;
    exec::Texture& texture = pyramid.texture;
    texture.level_bias = 1;
    CHECK(fetch(texture, 0.7f, 0.3f, 0) == 1012);
    CHECK(fetch(texture, 0.7f, 0.3f, 1) == 2001);
    texture.least_level = 1.75f;
    CHECK(fetch(texture, 0.7f, 0.3f, -7) == 2001);
    texture.most_level = 1;  // below the least one
    CHECK(fetch(texture, 0.7f, 0.3f, 3) == 1012);
    texture.level_bias = -10, texture.least_level = 0, texture.most_level = 2;
    CHECK(fetch(texture, 0.7f, 0.3f, 12) == 2001);
    CHECK(fetch(texture, 0.7f, 0.3f, 20) == 2001);
    CHECK(fetch(texture, 0.7f, 0.3f, 10) == 25);
}

TEST_CASE("mipmap: between two levels lies their mean by the level's fraction of 8 bits") {
    Pyramid pyramid;
    exec::Texture& texture = pyramid.texture;
    texture.filters_levels = true;
    CHECK(fetch(texture, 0.7f, 0.3f, 0) == 25);
    CHECK(fetch(texture, 0.7f, 0.3f, 0.25f) == 0.75f * 25 + 0.25f * 1012);
    CHECK(fetch(texture, 0.7f, 0.3f, 1.5f) == 0.5f * 1012 + 0.5f * 2001);
    CHECK(fetch(texture, 0.7f, 0.3f, 2.75f) == 0.25f * 2001 + 0.75f * 3000);
    CHECK(fetch(texture, 0.7f, 0.3f, 3) == 3000);
    CHECK(fetch(texture, 0.7f, 0.3f, 9) == 3000);
    // 1/1024 is no weight, 1/256 the least; 1023/1024 is the next level.
    CHECK(fetch(texture, 0.7f, 0.3f, 1 + 1 / 1024.0f) == 1012);
    CHECK(fetch(texture, 0.7f, 0.3f, 1 + 1 / 256.0f) == 1012 + 989 / 256.0f);
    CHECK(fetch(texture, 0.7f, 0.3f, 2 - 1 / 1024.0f) == 2001);
    // An infinity of a level that has no weight is not read.
    pyramid.memory[3]->as<float>()[0] = std::numeric_limits<float>::infinity();
    CHECK(fetch(texture, 0.7f, 0.3f, 2) == 2001);
    // Both filters: of each level the mean of what lies around.
    texture.filters = true;
    texture.addressing[0] = texture.addressing[1] = AddressMode::Clamp;
    // Level 0 at (5, 3): amid 24, 25, 34 and 35. Level 1 at (2.5, 1.5): the center of (2, 1).
    CHECK(fetch(texture, 0.625f, 0.375f, 0) == 29.5f);
    CHECK(fetch(texture, 0.625f, 0.375f, 1) == 1012);
    CHECK(fetch(texture, 0.625f, 0.375f, 0.5f) == (29.5f + 1012) / 2);
}

TEST_CASE("mipmap: the level of a step is that whose texels are as far apart") {
    const Pyramid pyramid;
    const auto level = [&](std::array<float, 3> x, std::array<float, 3> y, std::uint32_t dimensions = 2) {
        return exec::level_of(pyramid.texture, {.dimensions = dimensions}, x.data(), y.data());
    };
    CHECK(level({1 / 8.0f, 0, 0}, {0, 1 / 8.0f, 0}) == 0);
    CHECK(level({1 / 4.0f, 0, 0}, {0, 1 / 8.0f, 0}) == 1);
    CHECK(level({1 / 8.0f, 0, 0}, {0, 1 / 2.0f, 0}) == 2);
    CHECK(level({3 / 8.0f, 4 / 8.0f, 0}, {0, 0, 0}) == std::log2(5.0f));
    CHECK(level({3 / 8.0f, 4 / 8.0f, 0}, {0, 0, 0}, 1) == std::log2(3.0f));
    CHECK(level({0, 0, 0}, {0, 0, 0}) == -std::numeric_limits<float>::infinity());
}

TEST_CASE("mipmap: instructions name the level, or tell the step") {
    const Pyramid pyramid;
    const Module module(R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 handle, .param .u64 out)
{
    .reg .b64 %h, %o; .reg .f32 %f<8>; .reg .b32 %r<8>;
    ld.param.u64 %h, [handle]; ld.param.u64 %o, [out];
    mov.f32 %f5, 0f3F333333; mov.f32 %f6, 0f3E99999A;   // 0.7, 0.3
    tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%h, {%f5, %f6}]; st.global.f32 [%o], %f1;
    tex.base.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%h, {%f5, %f6}]; st.global.f32 [%o+4], %f1;
    mov.f32 %f7, 0f3F800000;
    tex.level.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%h, {%f5, %f6}], %f7; st.global.f32 [%o+8], %f1;
    mov.u32 %r1, 1; mov.u32 %r2, 0; mov.u32 %r3, 2;
    tex.level.2d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%h, {%r1, %r2}], %r3; st.global.u32 [%o+12], %r4;
    tex.grad.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%h, {%f5, %f6}], {0f3E800000, 0f00000000}, {0f00000000, 0f3E000000};
    st.global.f32 [%o+16], %f1;
    tex.grad.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%h, {%f5}], {0f3F000000}, {0f00000000};
    st.global.f32 [%o+20], %f1;
    tex.level.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%h, {%f5}], 0f40400000; st.global.f32 [%o+24], %f1;
    txq.width.b32 %r4, [%h]; st.global.u32 [%o+28], %r4;
    ret;
}
)");
    const DeviceMemory out(32);
    const Result result = run(module, "k", 1, 1, handle_of(pyramid.texture), out.address());
    REQUIRE_MESSAGE(result.outcome == exec::Outcome::Finished, result.message);
    const auto* found = out.as<float>();
    CHECK(std::vector<float>(found, found + 7) == std::vector<float>{25, 25, 1012, 2001, 1012, 2001, 3000});
    CHECK(out.as<unsigned>()[7] == 8);
}

}  // namespace
}  // namespace simcuda::testing

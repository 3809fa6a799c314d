// mma: elements lie in the lanes as the PTX ISA draws them. Matrices are of small numbers, so that every sum
// is exact, but where rounding is what is tested.
#include <doctest/doctest.h>

#include <bit>
#include <memory>

#include "tests/ptx/device.h"
#include "tests/ptx/matrix.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

using Words = std::vector<std::uint32_t>;

struct Place {
    unsigned row, column;
};

// Element i of a lane's, for all shapes but that of quads of lanes: a register holds `e` consecutive ones.
Place place_of_a(unsigned m, unsigned e, unsigned lane, unsigned i) {
    const unsigned group = lane >> 2, thread = lane % 4, reg = i / e;
    const bool lower = m == 16 && reg % 2 == 1;
    return {group + (lower ? 8 : 0), thread * e + i % e + (m == 16 ? reg / 2 : reg) * 4 * e};
}
Place place_of_b(unsigned, unsigned e, unsigned lane, unsigned i) {
    return {lane % 4 * e + i % e + i / e * 4 * e, lane >> 2};
}
Place place_of_c(unsigned, unsigned, unsigned lane, unsigned i) {
    return {(lane >> 2) + (i >= 2 ? 8 : 0), lane % 4 * 2 + i % 2};
}

// mma.m8n8k4 of f16: four products, each of 8 lanes.
struct Quads {
    bool a_by_column, b_by_column;
    Place a(unsigned lane, unsigned i) const {
        const unsigned half = lane < 16 ? 0 : 4;
        return a_by_column ? Place{i % 4 + half, lane % 4} : Place{lane % 4 + half, i};
    }
    Place b(unsigned lane, unsigned i) const {
        const unsigned half = lane < 16 ? 0 : 4;
        return b_by_column ? Place{i, lane % 4 + half} : Place{lane % 4, i + half};
    }
    static Place c(const Number& type, unsigned lane, unsigned i) {
        const unsigned half = lane < 16 ? 0 : 4;
        if (type.bits == 16) return {lane % 4 + half, i};
        return {(lane & 1) + (i & 2) + half, (i & 4) + (lane & 2) + (i & 1)};
    }
};

// A kernel of one warp that loads its lanes' a, b and c, executes `opcode`, and stores d.
std::string multiply_kernel(const std::string& opcode, const Number types[4], const unsigned counts[4]) {
    constexpr char kNames[] = {'d', 'a', 'b', 'c'};
    std::string text =
        std::string(kMatrixHead) +
        ".visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc)\n{\n"
        " .reg .b64 %p<9>; .reg .b32 %lane; mov.u32 %lane, %laneid;\n";
    for (int i = 0; i < 4; ++i) {
        const bool wide = types[i].bits == 64;
        const std::string_view type = wide ? "f64" : types[i].name == "f32" ? "f32" : "b32";
        text +=
            fmt::format(" .reg .{} %{}<{}>; ld.param.u64 %p{}, [p{}]; mad.wide.u32 %p{}, %lane, {}, %p{};\n",
                        type, kNames[i], counts[i], i, kNames[i], i, counts[i] * (wide ? 8 : 4), i);
        for (unsigned r = 0; i > 0 && r < counts[i]; ++r)
            text +=
                fmt::format(" ld.global.{} %{}{}, [%p{}+{}];\n", type, kNames[i], r, i, r * (wide ? 8 : 4));
    }
    text += fmt::format(" {} {}, {}, {}, {};\n", opcode, registers('d', counts[0]), registers('a', counts[1]),
                        registers('b', counts[2]), registers('c', counts[3]));
    for (unsigned r = 0; r < counts[0]; ++r) {
        const bool wide = types[0].bits == 64;
        text += fmt::format(" st.global.{} [%p0+{}], %d{};\n",
                            wide                     ? "f64"
                            : types[0].name == "f32" ? "f32"
                                                     : "b32",
                            r * (wide ? 8 : 4), r);
    }
    return text + " ret;\n}\n";
}

struct Held {
    std::unique_ptr<DeviceMemory> memory;
    unsigned bytes;
};
Held hold(unsigned elements, const Number& type) {
    const unsigned bytes = elements * type.bits / 8;
    return {std::make_unique<DeviceMemory>(bytes * 32), bytes};
}

void check_product(const std::string& opcode, Shape shape, const Number& d_type, const Number& a_type,
                   const Number& b_type, const Number& c_type, std::string_view operation = "") {
    CAPTURE(opcode);
    const auto m = shape.m, n = shape.n, k = shape.k;
    std::mt19937 random(m * 1000 + k);
    Matrix a = random_matrix(m, k, a_type, random), b = random_matrix(k, n, b_type, random),
           c = random_matrix(m, n, c_type, random);
    Matrix wanted = product(a, b, c, operation);
    const unsigned elements[] = {m * n / 32, m * k / 32, k * n / 32, m * n / 32};
    const Number types[] = {d_type, a_type, b_type, c_type};
    unsigned counts[4];
    for (int i = 0; i < 4; ++i) counts[i] = elements[i] * types[i].bits / (types[i].bits == 64 ? 64 : 32);
    const Held in_a = hold(elements[1], a_type), in_b = hold(elements[2], b_type),
               in_c = hold(elements[3], c_type), out = hold(elements[0], d_type);
    const auto fill = [&](const Held& held, Matrix& matrix, const Number& type, unsigned count, auto place) {
        for (unsigned lane = 0; lane < 32; ++lane)
            for (unsigned i = 0; i < count; ++i) {
                const Place at = place(m, type.bits > 32 ? 1 : 32 / type.bits, lane, i);
                put(held.memory->as<char>() + lane * held.bytes, type, i, matrix.at(at.row, at.column));
            }
    };
    fill(in_a, a, a_type, elements[1], place_of_a);
    fill(in_b, b, b_type, elements[2], place_of_b);
    fill(in_c, c, c_type, elements[3], place_of_c);
    const Module module(multiply_kernel(opcode, types, counts));
    const Result result = run(module, "k", 1, 32, out.memory->address(), in_a.memory->address(),
                              in_b.memory->address(), in_c.memory->address());
    REQUIRE_MESSAGE(result.outcome == Outcome::Finished, result.message);
    for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned i = 0; i < elements[0]; ++i) {
            const Place at = place_of_c(m, 1, lane, i);
            REQUIRE(get(out.memory->as<char>() + lane * out.bytes, d_type, i) ==
                    wanted.at(at.row, at.column));
        }
}

TEST_CASE("mma: floats of 16 bits and fewer") {
    for (const Shape shape : {Shape{16, 8, 8}, Shape{16, 8, 16}})
        for (const auto& [d, c] : {std::pair{kF32, kF32}, {kF16, kF16}})
            check_product(
                fmt::format("mma.sync.aligned.{}.row.col.{}.f16.f16.{}", shape_name(shape), d.name, c.name),
                shape, d, kF16, kF16, c);
    for (const Shape shape : {Shape{16, 8, 8}, Shape{16, 8, 16}})
        check_product(fmt::format("mma.sync.aligned.{}.row.col.f32.bf16.bf16.f32", shape_name(shape)), shape,
                      kF32, kBf16, kBf16, kF32);
    for (const Shape shape : {Shape{16, 8, 16}, Shape{16, 8, 32}})
        for (const auto& [a, b] : {std::pair{kE4m3, kE5m2}, {kE5m2, kE4m3}})
            for (const Number& d : {kF32, kF16})
                check_product(fmt::format("mma.sync.aligned.{}.row.col.{}.{}.{}.{}", shape_name(shape),
                                          d.name, a.name, b.name, d.name),
                              shape, d, a, b, d);
}

TEST_CASE("mma: tf32 and f64") {
    for (const Shape shape : {Shape{16, 8, 4}, Shape{16, 8, 8}})
        check_product(fmt::format("mma.sync.aligned.{}.row.col.f32.tf32.tf32.f32", shape_name(shape)), shape,
                      kF32, kTf32, kTf32, kF32);
    for (const Shape shape : {Shape{8, 8, 4}, Shape{16, 8, 4}, Shape{16, 8, 8}, Shape{16, 8, 16}})
        check_product(fmt::format("mma.sync.aligned.{}.row.col.f64.f64.f64.f64", shape_name(shape)), shape,
                      kF64, kF64, kF64, kF64);
}

TEST_CASE("mma: integers and bits") {
    for (const Shape shape : {Shape{8, 8, 16}, Shape{16, 8, 16}, Shape{16, 8, 32}})
        for (const Number* a : {&kU8, &kS8})
            for (const Number* b : {&kU8, &kS8})
                check_product(fmt::format("mma.sync.aligned.{}.row.col.s32.{}.{}.s32", shape_name(shape),
                                          a->name, b->name),
                              shape, kS32, *a, *b, kS32);
    for (const Shape shape : {Shape{8, 8, 32}, Shape{16, 8, 32}, Shape{16, 8, 64}})
        for (const Number* a : {&kU4, &kS4})
            for (const Number* b : {&kU4, &kS4})
                check_product(fmt::format("mma.sync.aligned.{}.row.col.satfinite.s32.{}.{}.s32",
                                          shape_name(shape), a->name, b->name),
                              shape, kS32, *a, *b, kS32);
    for (const Shape shape : {Shape{8, 8, 128}, Shape{16, 8, 128}, Shape{16, 8, 256}})
        for (const std::string_view operation : {"xor", "and"})
            check_product(fmt::format("mma.sync.aligned.{}.row.col.s32.b1.b1.s32.{}.popc", shape_name(shape),
                                      operation),
                          shape, kS32, kB1, kB1, kS32, operation);
}

TEST_CASE("mma: m8n8k4 of f16, by quads of lanes") {
    for (const Number* d_type : {&kF16, &kF32})
        for (int layout = 0; layout < 4; ++layout) {
            const Quads quads{(layout & 1) != 0, (layout & 2) != 0};
            const std::string opcode =
                fmt::format("mma.sync.aligned.m8n8k4.{}.{}.{}.f16.f16.{}", quads.a_by_column ? "col" : "row",
                            quads.b_by_column ? "col" : "row", d_type->name, d_type->name);
            CAPTURE(opcode);
            std::mt19937 random(1);
            const Number types[] = {*d_type, kF16, kF16, *d_type};
            const unsigned counts[] = {d_type->bits / 4, 2, 2, d_type->bits / 4};
            const DeviceMemory a(32 * 8), b(32 * 8), c(32 * 32), d(32 * 32);
            std::vector<Matrix> wanted;
            for (unsigned quad = 0; quad < 4; ++quad) {
                Matrix x = random_matrix(8, 4, kF16, random), y = random_matrix(4, 8, kF16, random),
                       z = random_matrix(8, 8, kF16, random);
                wanted.push_back(product(x, y, z));
                for (unsigned lane = 0; lane < 32; ++lane) {
                    if (lane / 4 % 4 != quad) continue;
                    for (unsigned i = 0; i < 4; ++i) {
                        const Place in_a = quads.a(lane, i), in_b = quads.b(lane, i);
                        put(a.as<char>() + lane * 8, kF16, i, x.at(in_a.row, in_a.column));
                        put(b.as<char>() + lane * 8, kF16, i, y.at(in_b.row, in_b.column));
                    }
                    for (unsigned i = 0; i < 8; ++i) {
                        const Place in_c = Quads::c(*d_type, lane, i);
                        put(c.as<char>() + lane * d_type->bits, *d_type, i, z.at(in_c.row, in_c.column));
                    }
                }
            }
            const Module module(multiply_kernel(opcode, types, counts));
            REQUIRE(run(module, "k", 1, 32, d.address(), a.address(), b.address(), c.address()).outcome ==
                    Outcome::Finished);
            for (unsigned lane = 0; lane < 32; ++lane)
                for (unsigned i = 0; i < 8; ++i) {
                    const Place at = Quads::c(*d_type, lane, i);
                    REQUIRE(get(d.as<char>() + lane * d_type->bits, *d_type, i) ==
                            wanted[lane / 4 % 4].at(at.row, at.column));
                }
        }
}

// Words of one lane: lane 0's own row and column, all else zero.
Words products_of_lane_0(const std::string& opcode, const Number types[4], const unsigned counts[4],
                         const Words& a, const Words& b, const Words& c) {
    const DeviceMemory in_a(2048), in_b(2048), in_c(2048), out(2048);
    for (const DeviceMemory* memory : {&in_a, &in_b, &in_c}) std::memset(memory->as<char>(), 0, 2048);
    std::memcpy(in_a.as<char>(), a.data(), a.size() * 4);
    std::memcpy(in_b.as<char>(), b.data(), b.size() * 4);
    std::memcpy(in_c.as<char>(), c.data(), c.size() * 4);
    const Module module(multiply_kernel(opcode, types, counts));
    REQUIRE(run(module, "k", 1, 32, out.address(), in_a.address(), in_b.address(), in_c.address()).outcome ==
            Outcome::Finished);
    return {out.as<std::uint32_t>(), out.as<std::uint32_t>() + counts[0]};
}

std::uint32_t word(float value) {
    return std::bit_cast<std::uint32_t>(value);
}

TEST_CASE("mma: sums are rounded once; tf32 ignores what it has no room for; integers wrap or clamp") {
    const Number halves[] = {kF32, kF16, kF16, kF32};
    const unsigned half_counts[] = {4, 4, 2, 4};
    const std::uint32_t ones = 0x3c003c00;
    // One by one each 1 would be lost beside 2^24.
    CHECK(products_of_lane_0("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", halves, half_counts,
                             {ones, 0, ones}, {ones, ones}, {word(0x1p24f)})[0] == word(0x1p24f + 4));
    const Number narrow[] = {kF16, kF16, kF16, kF16};
    const unsigned narrow_counts[] = {2, 4, 2, 2};
    // 2048 + 1 + 1 + 1 + 1; the infinity and NaN of f16.
    CHECK((products_of_lane_0("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", narrow, narrow_counts,
                              {ones, 0, ones}, {ones, ones}, {0x6800})[0] &
           0xffff) == 0x6802);
    CHECK((products_of_lane_0("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", narrow, narrow_counts,
                              {0x7bff}, {0x7bff}, {0})[0] &
           0xffff) == 0x7c00);
    CHECK((products_of_lane_0("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", narrow, narrow_counts,
                              {0x7c00}, {0}, {0})[0] &
           0xffff) == 0x7fff);
    const Number tensor[] = {kF32, kTf32, kTf32, kF32};
    const unsigned tensor_counts[] = {4, 2, 1, 4};
    CHECK(products_of_lane_0("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", tensor, tensor_counts,
                             {word(3) | 0x1fff}, {word(5) | 0x1fff}, {word(1)})[0] == word(16));
    const Number bytes[] = {kS32, kS8, kS8, kS32};
    const unsigned byte_counts[] = {2, 1, 1, 2};
    for (const bool clamps : {false, true}) {
        const std::string opcode =
            fmt::format("mma.sync.aligned.m8n8k16.row.col{}.s32.s8.s8.s32", clamps ? ".satfinite" : "");
        CHECK(products_of_lane_0(opcode, bytes, byte_counts, {2}, {3}, {0x7ffffffe})[0] ==
              (clamps ? 0x7fffffff : 0x80000004));
        CHECK(products_of_lane_0(opcode, bytes, byte_counts, {2}, {0xfd}, {0x80000001})[0] ==
              (clamps ? 0x80000000 : 0x7ffffffb));
    }
    const Number doubles[] = {kF64, kF64, kF64, kF64};
    const unsigned double_counts[] = {2, 1, 1, 2};
    const auto low_word = [&](const char* mode) {
        // 1 + 2^-60, in each rounding mode.
        return products_of_lane_0(fmt::format("mma.sync.aligned.m8n8k4.row.col{}.f64.f64.f64.f64", mode),
                                  doubles, double_counts, {0, 0x3e100000}, {0, 0x3e100000},
                                  {0, 0x3ff00000})[0];
    };
    CHECK(low_word("") == 0);
    CHECK(low_word(".rm") == 0);
    CHECK(low_word(".rp") == 1);
}

}  // namespace
}  // namespace simcuda::testing

// Runs instruction cases.
#include "tests/ptx/instructions.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

constexpr std::size_t kMaxRows = 4000;

std::vector<Bits> edge_values(Type type) {
    switch (ptx::bytes_of(type)) {
        case 1:
            if (type == Type::Pred) return {0, 1};
            return {0, 1, 0x7f, 0x80, 0xff, 0x35};
        case 2:
            if (type == Type::F16)
                return {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0x7bff,
                        0xfbff, 0x7c00, 0xfc00, 0x7e01, 0x3555, 0x6400, 0xe401, 0x3800, 0x4200};
            if (type == Type::Bf16)
                return {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x3f80, 0xbf80, 0x3f81,
                        0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc1, 0x3eab, 0x4b00, 0x4049};
            return {0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1234};
        case 4:
            if (type == Type::F32)
                return {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x00000001, 0x807fffff, 0x00800000,
                        0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00123, 0x3f000000, 0x3fc00000,
                        0xc0200000, 0x4f000000, 0xcf000001, 0x4b7fffff, 0x3eaaaaab, 0x5f000000};
            return {0,   1,      2,      5,          31,         32,         33,         255,
                    256, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xdeadbeef};
        default:
            if (type == Type::F64)
                return {bits(0.0),
                        bits(-0.0),
                        bits(1.0),
                        bits(-1.0),
                        1,
                        0x800fffffffffffff,
                        0x0010000000000000,
                        0x7fefffffffffffff,
                        0x7ff0000000000000,
                        0xfff0000000000000,
                        0x7ff8000000000123,
                        bits(0.5),
                        bits(1.5),
                        bits(-2.5),
                        bits(2147483648.0),
                        bits(-2147483649.0),
                        bits(4294967295.5),
                        bits(9223372036854775808.0),
                        bits(1.0 / 3),
                        bits(1e-40)};
            return {0,
                    1,
                    2,
                    31,
                    63,
                    64,
                    0x7fffffff,
                    0x80000000,
                    0xffffffff,
                    0x100000000,
                    0x7fffffffffffffff,
                    0x8000000000000000,
                    0x8000000000000001,
                    0xffffffffffffffff,
                    0x0123456789abcdef};
    }
}

Bits mask_of(Type type) {
    return ptx::bytes_of(type) >= 8 ? ~Bits{0} : (Bits{1} << ptx::bytes_of(type) * 8) - 1;
}

Bits random_value(Type type, std::mt19937_64& random) {
    if (type == Type::Pred) return random() & 1;
    if (type == Type::F32 && random() % 2)
        return bits(
            std::ldexp(static_cast<float>(random() % 16777216), static_cast<int>(random() % 60) - 50));
    if (type == Type::F64 && random() % 2)
        return bits(std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 100) - 90));
    // Small numbers too, which shifts and positions are made of.
    if (random() % 4 == 0) return random() % 70 & mask_of(type);
    return random() & mask_of(type);
}

std::vector<std::vector<Bits>> operand_rows(const std::vector<Type>& types) {
    std::vector<std::vector<Bits>> rows{{}};
    for (Type type : types) {
        std::vector<std::vector<Bits>> longer;
        for (const auto& row : rows)
            for (Bits value : edge_values(type)) {
                longer.push_back(row);
                longer.back().push_back(value);
            }
        rows = std::move(longer);
    }
    std::mt19937_64 random(2024);
    std::shuffle(rows.begin(), rows.end(), random);
    if (rows.size() > kMaxRows) rows.resize(kMaxRows);
    for (int i = 0; i < 500; ++i) {
        rows.emplace_back();
        for (Type type : types) rows.back().push_back(random_value(type, random));
    }
    return rows;
}

std::string load(Type type, char name, std::size_t column) {
    const std::string from = fmt::format("[%in+{}]", column * 8);
    if (type == Type::Pred)
        return fmt::format("  {{ .reg .u32 w; ld.global.u32 w, {}; setp.ne.u32 %{}, w, 0; }}\n", from, name);
    return fmt::format("  ld.global.b{} %{}, {};\n", ptx::bytes_of(type) * 8, name, from);
}

// Registers of one byte do not exist: such values live in 16 bits.
std::string register_type(Type type) {
    if (type == Type::Pred) return ".pred";
    if (type == Type::F32 || type == Type::F64) return fmt::format(".{}", ptx::name_of(type));
    return fmt::format(".b{}", std::max(2u, ptx::bytes_of(type)) * 8);
}

std::string kernel_text(const InstructionCase& test, std::size_t index) {
    static constexpr char kNames[] = {'a', 'b', 'c', 'e'};
    std::string text = fmt::format(
        ".visible .entry test{}(.param .u64 input, .param .u64 output, .param .u32 rows)\n{{\n"
        "  .reg .u64 %in, %out, %row; .reg .u32 %i, %n, %m; .reg .pred %past, %p0, %p1, %p2, %p3;\n"
        "  .reg {} %d;\n",
        index, register_type(test.result));
    for (std::size_t i = 0; i < test.operands.size(); ++i)
        text += fmt::format("  .reg {} %{};\n", register_type(test.operands[i]), kNames[i]);
    text +=
        "  ld.param.u64 %in, [input];\n  ld.param.u64 %out, [output];\n  ld.param.u32 %n, [rows];\n"
        "  mov.u32 %i, %ctaid.x; mov.u32 %m, %ntid.x; mul.lo.u32 %i, %i, %m; mov.u32 %m, %tid.x;\n"
        "  add.u32 %i, %i, %m;\n  setp.ge.u32 %past, %i, %n;\n  @%past ret;\n  mul.wide.u32 %row, %i, 32;\n"
        "  add.u64 %in, %in, %row;\n  shr.u64 %row, %row, 2;\n  add.u64 %out, %out, %row;\n";
    text += "  mov.u64 %row, together;\n";
    for (std::size_t i = 0; i < test.operands.size(); ++i) text += load(test.operands[i], kNames[i], i);
    text += "  " + test.code + "\n";
    if (test.result == Type::Pred)
        text += "  { .reg .u32 w; selp.u32 w, 1, 0, %d; st.global.u32 [%out], w; }\n";
    else
        text += fmt::format("  st.global.b{} [%out], %d;\n", ptx::bytes_of(test.result) * 8);
    return text + "  ret;\n}\n";
}

bool is_nan(Type type, Bits value) {
    switch (type) {
        case Type::F32:
            return std::isnan(f32(value));
        case Type::F64:
            return std::isnan(f64(value));
        case Type::F16:
            return (value & 0x7fff) > 0x7c00;
        case Type::Bf16:
            return (value & 0x7fff) > 0x7f80;
        default:
            return false;
    }
}

double distance_in_ulps(Type type, Bits a, Bits b) {
    if (type == Type::F32) {
        const double ulp =
            std::max(std::ldexp(1.0, std::ilogb(std::fmax(std::fabs(f32(b)), 0x1p-126f)) - 23), 0x1p-149);
        return std::fabs(static_cast<double>(f32(a)) - static_cast<double>(f32(b))) / ulp;
    }
    const double ulp = std::ldexp(1.0, std::max(std::ilogb(f64(b)), -1022) - 52);
    return std::fabs(f64(a) - f64(b)) / ulp;
}

bool equal(const InstructionCase& test, Bits actual, Bits wanted, bool exact_nan) {
    if (actual == wanted) return true;
    if (!exact_nan && is_nan(test.result, actual) && is_nan(test.result, wanted)) return true;
    return test.ulps > 0 && distance_in_ulps(test.result, actual, wanted) <= test.ulps;
}

}  // namespace

float f32(Bits value) {
    float result;
    const auto low = static_cast<std::uint32_t>(value);
    std::memcpy(&result, &low, sizeof result);
    return result;
}
double f64(Bits value) {
    double result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}
Bits bits(float value) {
    std::uint32_t low;
    std::memcpy(&low, &value, sizeof low);
    return low;
}
Bits bits(double value) {
    Bits result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

void check_instructions(const std::vector<InstructionCase>& cases, bool exact_nan) {
    // Kernels that use the address of a function are compiled together, which saves most of the time.
    std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n.func together() { ret; }\n";
    for (std::size_t i = 0; i < cases.size(); ++i) text += kernel_text(cases[i], i);
    const Module module(text);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const InstructionCase& test = cases[i];
        CAPTURE(test.code);
        const auto rows = operand_rows(test.operands);
        const DeviceMemory input(rows.size() * 32);
        const DeviceMemory output(rows.size() * 8);
        for (std::size_t row = 0; row < rows.size(); ++row)
            std::memcpy(input.as<Bits>() + row * 4, rows[row].data(), rows[row].size() * 8);
        const Result result =
            run(module, fmt::format("test{}", i), static_cast<std::uint32_t>(rows.size() / 128 + 1), 128,
                input.address(), output.address(), static_cast<std::uint32_t>(rows.size()));
        REQUIRE_MESSAGE(result.outcome == exec::Outcome::Finished,
                        module.kernel(fmt::format("test{}", i)).unsupported << result.message);
        int shown = 0;
        for (std::size_t row = 0; row < rows.size(); ++row) {
            const Bits actual = output.as<Bits>()[row] & mask_of(test.result);
            const Bits wanted = test.expected(rows[row].data()) & mask_of(test.result);
            if (equal(test, actual, wanted, exact_nan) || ++shown > 3) continue;
            FAIL_CHECK(fmt::format("{}: operands {:#x}: got {:#x}, expected {:#x}", test.code,
                                   fmt::join(rows[row], ", "), actual, wanted));
        }
        CHECK(shown == 0);
    }
}

}  // namespace simcuda::testing

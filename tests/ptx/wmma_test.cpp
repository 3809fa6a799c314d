// wmma: loads, products and stores of whole matrices; how the lanes hold them is theirs.
#include <doctest/doctest.h>

#include "tests/ptx/device.h"
#include "tests/ptx/matrix.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

struct Fragments {
    const Number* factor;  // of a and b
    const Number* result;  // of c and d
    Shape shape;
    unsigned a, b, c;  // registers
};

// Copies 4 KiB between global memory and a shared array.
std::string copy(unsigned label, const char* to, const char* to_space, const char* from,
                 const char* from_space) {
    return fmt::format(
        " mov.u32 %i, 0; mov.u64 %t, {}; mov.u64 %f, {};\nCOPY{}:\n ld.{}.b32 %w, [%f]; st.{}.b32 [%t], %w;"
        " add.u64 %f, %f, 4; add.u64 %t, %t, 4; add.u32 %i, %i, 4; setp.lt.u32 %q, %i, 4096; @%q bra "
        "COPY{};\n",
        to, from, label, from_space, to_space, label);
}

// Loads with strides of its own, multiplies, stores; in global memory, in shared, or by generic addresses.
std::string wmma_kernel(const Fragments& f, const char* a_layout, const char* b_layout, const char* c_layout,
                        const std::string& operation, unsigned extra, const std::string& space) {
    const auto [m, n, k] = f.shape;
    const std::string shape = shape_name(f.shape);
    const std::string dot = space.empty() ? "" : "." + space;
    const auto type = [](const Number& number) {
        return number.bits == 64 ? "f64" : number.name == "f32" ? "f32" : "b32";
    };
    const auto stride = [extra](const char* layout, unsigned rows, unsigned columns) {
        return (*layout == 'r' ? columns : rows) + extra;
    };
    const bool shared = space == "shared";
    const auto place = [shared](char matrix) {
        return shared ? fmt::format("s{}", matrix) : fmt::format("%g{}", matrix);
    };
    std::string text =
        std::string(kMatrixHead) +
        ".visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc)\n{\n" +
        fmt::format(
            " .reg .b64 %ga, %gb, %gc, %gd, %t, %f; .reg .b32 %s, %i, %w; .reg .pred %q;\n"
            " .reg .{0} %a<9>; .reg .{0} %b<9>; .reg .{1} %c<9>; .reg .{1} %d<9>;\n",
            type(*f.factor), type(*f.result));
    unsigned label = 0;
    for (const char matrix : {'d', 'a', 'b', 'c'}) {
        text += fmt::format(" ld.param.u64 %g{0}, [p{0}];\n", matrix);
        if (shared)
            text +=
                fmt::format(" .shared .align 32 .b8 s{}[4096];\n", matrix) +
                copy(label++, place(matrix).c_str(), "shared", fmt::format("%g{}", matrix).c_str(), "global");
    }
    text += fmt::format(" wmma.load.a.sync.aligned.{}.{}{}.{} {}, [{}], {};\n", a_layout, shape, dot,
                        f.factor->name, registers('a', f.a), place('a'), stride(a_layout, m, k));
    text += fmt::format(" mov.u32 %s, {};\n", stride(b_layout, k, n));
    text += fmt::format(" wmma.load.b.sync.aligned.{}.{}{}.{} {}, [{}], %s;\n", b_layout, shape, dot,
                        f.factor->name, registers('b', f.b), place('b'));
    text += fmt::format(" wmma.load.c.sync.aligned.{}.{}{}.{} {}, [{}], {};\n", c_layout, shape, dot,
                        f.result->name, registers('c', f.c), place('c'), stride(c_layout, m, n));
    text += fmt::format(" {} {}, {}, {}, {};\n", operation, registers('d', f.c), registers('a', f.a),
                        registers('b', f.b), registers('c', f.c));
    text += fmt::format(" wmma.store.d.sync.aligned.{}.{}{}.{} [{}], {}, {};\n", c_layout, shape, dot,
                        f.result->name, place('d'), registers('d', f.c), stride(c_layout, m, n));
    if (shared) text += copy(label, "%gd", "global", "sd", "shared");
    return text + " ret;\n}\n";
}

void check_wmma(const Fragments& f, bool a_by_column, bool b_by_column, bool c_by_column,
                const std::string& operation, const std::string& space, std::string_view bits = "") {
    const auto [m, n, k] = f.shape;
    const unsigned extra = f.factor->bits < 8 ? 32 * (8 / f.factor->bits) : 16;
    const auto layout = [](bool by_column) { return by_column ? "col" : "row"; };
    const Module module(wmma_kernel(f, layout(a_by_column), layout(b_by_column), layout(c_by_column),
                                    operation, extra, space));
    CAPTURE(operation);
    std::mt19937 random(m + n);
    Matrix a = random_matrix(m, k, *f.factor, random), b = random_matrix(k, n, *f.factor, random),
           c = random_matrix(m, n, *f.result, random);
    Matrix wanted = product(a, b, c, bits);
    const DeviceMemory in_a(1 << 14), in_b(1 << 14), in_c(1 << 14), out(1 << 14);
    const auto index = [extra](const Matrix& matrix, bool by_column, unsigned r, unsigned column) {
        return by_column ? column * (matrix.rows + extra) + r : r * (matrix.columns + extra) + column;
    };
    const auto fill = [&](const DeviceMemory& memory, Matrix& matrix, const Number& type, bool by_column) {
        for (unsigned r = 0; r < matrix.rows; ++r)
            for (unsigned column = 0; column < matrix.columns; ++column)
                put(memory.as<char>(), type, index(matrix, by_column, r, column), matrix.at(r, column));
    };
    fill(in_a, a, *f.factor, a_by_column);
    fill(in_b, b, *f.factor, b_by_column);
    fill(in_c, c, *f.result, c_by_column);
    std::vector<std::uint8_t> whole(out.as<std::uint8_t>(), out.as<std::uint8_t>() + (1 << 14));
    const Result result =
        run(module, "k", 1, 32, out.address(), in_a.address(), in_b.address(), in_c.address());
    REQUIRE_MESSAGE(result.outcome == Outcome::Finished, result.message);
    for (unsigned r = 0; r < m; ++r)
        for (unsigned column = 0; column < n; ++column)
            put(whole.data(), *f.result, index(wanted, c_by_column, r, column), wanted.at(r, column));
    CHECK(std::memcmp(out.as<char>(), whole.data(), whole.size()) == 0);
}

TEST_CASE("wmma: load, multiply and store in all shapes and layouts, and nothing written beside") {
    const std::vector<Fragments> any = {
        {&kF16, &kF32, {16, 16, 16}, 8, 8, 8},  {&kF16, &kF16, {16, 16, 16}, 8, 8, 4},
        {&kF16, &kF32, {8, 32, 16}, 8, 8, 8},   {&kF16, &kF16, {32, 8, 16}, 8, 8, 4},
        {&kBf16, &kF32, {16, 16, 16}, 4, 4, 8}, {&kBf16, &kF32, {8, 32, 16}, 2, 8, 8},
        {&kBf16, &kF32, {32, 8, 16}, 8, 2, 8},  {&kTf32, &kF32, {16, 16, 8}, 4, 4, 8},
        {&kF64, &kF64, {8, 8, 4}, 1, 1, 2},     {&kU8, &kS32, {16, 16, 16}, 2, 2, 8},
        {&kS8, &kS32, {8, 32, 16}, 1, 4, 8},    {&kS8, &kS32, {32, 8, 16}, 4, 1, 8},
        {&kU4, &kS32, {8, 8, 32}, 1, 1, 2},     {&kS4, &kS32, {8, 8, 32}, 1, 1, 2},
    };
    // Each with two layouts of each matrix, each layout in another space.
    int turn = 0;
    for (const Fragments& f : any)
        for (const int layout : {turn & 7, 7 - (turn & 7)}) {
            ++turn;
            const bool nibbles = f.factor->bits == 4;  // only by row and by column
            const bool a = !nibbles && layout & 1, b = nibbles || layout & 2;
            const std::string types = f.factor == &kF16
                                          ? fmt::format("{0}.{0}", f.result->name)
                                          : fmt::format("{0}.{1}.{1}.{0}", f.result->name, f.factor->name);
            const char* const spaces[] = {"", "global", "shared"};
            check_wmma(f, a, b, layout & 4,
                       fmt::format("wmma.mma.sync.aligned.{}.{}.{}.{}", a ? "col" : "row", b ? "col" : "row",
                                   shape_name(f.shape), types),
                       spaces[turn % 3]);
        }
    const Fragments f{&kB1, &kS32, {8, 8, 128}, 1, 1, 2};
    for (const std::string_view bits : {"xor", "and"})
        check_wmma(f, false, true, true,
                   fmt::format("wmma.mma.{}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", bits),
                   "global", bits);
}

// As public programs have them: each with its layouts and space.
TEST_CASE("wmma: the forms of the table") {
    const Fragments halves{&kF16, &kF32, {16, 16, 16}, 8, 8, 8}, bytes{&kU8, &kS32, {16, 16, 16}, 2, 2, 8},
        brains{&kBf16, &kF32, {16, 16, 16}, 4, 4, 8}, tensors{&kTf32, &kF32, {16, 16, 8}, 4, 4, 8},
        doubles{&kF64, &kF64, {8, 8, 4}, 1, 1, 2};
    const auto check = [](const Fragments& f, bool a, bool b, bool c, const char* space, const char* types) {
        check_wmma(f, a, b, c,
                   fmt::format("wmma.mma.sync.aligned.{}.{}.{}.{}", a ? "col" : "row", b ? "col" : "row",
                               shape_name(f.shape), types),
                   space);
    };
    for (const char* space : {"global", "shared"}) {
        check(halves, false, true, false, space, "f32.f32");
        check(bytes, false, true, false, space, "s32.u8.u8.s32");
    }
    check(halves, true, true, true, "global", "f32.f32");
    check(brains, false, true, false, "", "f32.bf16.bf16.f32");
    check(tensors, false, true, false, "", "f32.tf32.tf32.f32");
    check(doubles, false, true, false, "", "f64.f64.f64.f64.rn");
}

}  // namespace
}  // namespace simcuda::testing

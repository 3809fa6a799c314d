// State spaces, vectors, atomics, and what memory holds before it is written.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/ptx/coverage.h"
#include "tests/ptx/device.h"
#include "tests/ptx/instructions.h"

namespace simcuda::testing {
namespace {

Module module_of(std::string_view text) {
    return Module(".version 8.0\n.target sm_75\n.address_size 64\n" + std::string(text));
}

TEST_CASE("memory: every state space by its own and by generic addresses") {
    const Module module = module_of(R"(
.global .align 8 .u64 counter = 40;
.global .align 8 .u64 indirect = generic(counter);
.const .align 4 .u32 constants[4] = {10, 20, 30, 40};
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 out, .param .align 4 .b8 block[8])
{
    .local .align 4 .b8 depot[16];
    .shared .align 4 .u32 fixed[4];
    .reg .b32 %r<10>; .reg .b64 %rd<20>; .reg .pred %p<9>;
    ld.param.u64 %rd1, [out];
    // shared: static and dynamic parts do not overlap
    mov.u32 %r1, fixed; st.shared.u32 [%r1+12], 111; st.shared.u32 [dynamic], 222;
    cvt.u64.u32 %rd2, %r1; cvta.shared.u64 %rd2, %rd2; ld.u32 %r2, [%rd2+12]; st.global.u32 [%rd1], %r2;
    mov.u64 %rd3, dynamic; cvta.shared.u64 %rd3, %rd3; ld.u32 %r2, [%rd3]; st.global.u32 [%rd1+4], %r2;
    cvta.to.shared.u64 %rd4, %rd3; ld.shared.u32 %r2, [%rd4]; st.global.u32 [%rd1+8], %r2;
    // local
    mov.u64 %rd5, depot; st.local.u32 [%rd5+8], 333; cvta.local.u64 %rd6, %rd5; ld.u32 %r2, [%rd6+8]; st.global.u32 [%rd1+12], %r2;
    cvta.to.local.u64 %rd7, %rd6; ld.local.u32 %r2, [%rd7+8]; st.global.u32 [%rd1+16], %r2;
    // constant, global, through a pointer in memory
    ld.const.u32 %r2, [constants+8]; st.global.u32 [%rd1+20], %r2;
    mov.u64 %rd8, constants; cvta.const.u64 %rd8, %rd8; ld.u32 %r2, [%rd8+4]; st.global.u32 [%rd1+24], %r2;
    ld.global.u64 %rd9, [indirect]; ld.u64 %rd10, [%rd9]; add.u64 %rd10, %rd10, 2; st.u64 [%rd9], %rd10;
    ld.global.u32 %r2, [counter]; st.global.u32 [%rd1+28], %r2;
    // parameters
    mov.b64 %rd11, block; cvta.param.u64 %rd11, %rd11; ld.u32 %r2, [%rd11+4]; st.global.u32 [%rd1+32], %r2;
    // which is which
    isspacep.shared %p1, %rd2; isspacep.local %p2, %rd6; isspacep.global %p3, %rd9; isspacep.shared %p4, %rd9; isspacep.global %p5, %rd2; isspacep.local %p6, %rd2;
    mov.u32 %r3, 0;
    @%p1 or.b32 %r3, %r3, 1; @%p2 or.b32 %r3, %r3, 2; @%p3 or.b32 %r3, %r3, 4; @%p4 or.b32 %r3, %r3, 8; @%p5 or.b32 %r3, %r3, 16; @%p6 or.b32 %r3, %r3, 32;
    st.global.u32 [%rd1+36], %r3;
    mov.u32 %r4, %dynamic_smem_size; st.global.u32 [%rd1+40], %r4;
    ret;
})");
    const DeviceMemory out(64);
    struct {
        unsigned a = 1, b = 444;
    } block;
    exec::Launch launch = module.launch("k", pack(out.address(), block));
    launch.dynamic_shared_bytes = 1000;
    REQUIRE(run(std::move(launch)).outcome == exec::Outcome::Finished);
    const unsigned wanted[] = {111, 222, 222, 333, 333, 30, 20, 42, 444, 7, 1000};
    for (std::size_t i = 0; i < std::size(wanted); ++i) {
        CAPTURE(i);
        CHECK(out.as<unsigned>()[i] == wanted[i]);
    }
}

TEST_CASE("memory: vectors of all widths; the address may be among the targets") {
    const Module module = module_of(R"(
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b16 %rs<9>; .reg .f32 %f<9>; .reg .f64 %fd<3>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    ld.global.v4.u8 {%rs1, %rs2, %rs3, %rs4}, [%rd1]; st.global.v4.u8 [%rd2], {%rs4, %rs3, %rs2, %rs1};
    ld.global.v2.u16 {%rs1, %rs2}, [%rd1+4]; st.global.v2.u16 [%rd2+4], {%rs2, %rs1};
    ld.global.nc.v2.u32 {%r1, %r2}, [%rd1+8]; st.global.v2.u32 [%rd2+8], {%r2, %r1};
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16]; st.global.v4.f32 [%rd2+16], {%f4, %f3, %f2, %f1};
    ld.global.v2.f64 {%fd1, %fd2}, [%rd1+32]; st.global.v2.f64 [%rd2+32], {%fd2, %fd1};
    ld.volatile.global.v2.u64 {%rd3, %rd4}, [%rd1+48]; st.volatile.global.v2.u64 [%rd2+48], {%rd4, %rd3};
    ld.relaxed.gpu.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+64]; st.release.gpu.global.v4.u32 [%rd2+64], {%r4, %r3, %r2, %r1};
    ld.global.v2.u64 {%rd1, %rd5}, [%rd1+80]; st.global.v2.u64 [%rd2+80], {%rd5, %rd1};
    ret;
})");
    const DeviceMemory in(96), out(96);
    std::iota(in.as<unsigned char>(), in.as<unsigned char>() + 96, static_cast<unsigned char>(1));
    REQUIRE(run(module, "k", 1, 1, in.address(), out.address()).outcome == exec::Outcome::Finished);
    const auto reversed = [&](std::size_t at, std::size_t element, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            CHECK(std::memcmp(out.as<char>() + at + i * element,
                              in.as<char>() + at + (count - 1 - i) * element, element) == 0);
    };
    reversed(0, 1, 4);
    reversed(4, 2, 2);
    reversed(8, 4, 2);
    reversed(16, 4, 4);
    reversed(32, 8, 2);
    reversed(48, 8, 2);
    reversed(64, 4, 4);
    reversed(80, 8, 2);
}

TEST_CASE("memory: vector registers, as a whole and by their elements") {
    const Module module = module_of(R"(
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %rd<9>; .reg .v2 .u32 %pair; .reg .v4 .f32 %colour; .reg .v2 .u32 %again;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    ld.global.v2.u32 %pair, [%rd1]; st.global.u32 [%rd2], %pair.y; st.global.u32 [%rd2+4], %pair.x;
    mov.v2.u32 %again, %pair; mov.v2.u32 %again, {%again.y, %again.x}; st.global.v2.u32 [%rd2+8], %again;
    ld.global.v4.f32 %colour, [%rd1+16]; mov.f32 %colour.r, %colour.a; mov.f32 %colour.z, %colour.g;
    st.global.v4.f32 [%rd2+16], %colour;
    {
        .reg .v2 .u32 %pair;
        mov.v2.u32 %pair, {0, -1}; mov.u32 %pair.x, 7; st.global.v2.u32 [%rd2+32], %pair;
    }
    st.global.v2.u32 [%rd2+40], %pair;
    ret;
})");
    const DeviceMemory in(32), out(48);
    const std::uint32_t given[] = {1, 2, 0, 0, 10, 20, 30, 40};
    std::memcpy(in.as<void>(), given, sizeof given);
    REQUIRE(run(module, "k", 1, 1, in.address(), out.address()).outcome == exec::Outcome::Finished);
    const std::uint32_t wanted[] = {2, 1, 2, 1, 40, 20, 20, 40, 7, 0xffffffff, 1, 2};
    for (std::size_t i = 0; i < std::size(wanted); ++i) {
        CAPTURE(i);
        CHECK(out.as<std::uint32_t>()[i] == wanted[i]);
    }
}

// As GCC passes arguments.
TEST_CASE("memory: parameters of a call declared by one name and a count") {
    const Module module = module_of(R"(
.func (.param .u32 result) difference(.param .u64 a, .param .u32 b)
{
    .reg .b64 %rd<3>; .reg .b32 %r<5>;
    ld.param.u64 %rd1, [a]; ld.param.u32 %r2, [b];
    ld.u32 %r1, [%rd1]; sub.u32 %r3, %r1, %r2; st.param.u32 [result], %r3;
    ret;
}
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %rd<9>; .reg .b32 %r<9>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    {
        .param .u32 %result; .param .u64 %P<2>; .param .u32 %Q<12>;
        st.param.u64 [%P0], %rd1; st.param.u32 [%Q11], 30;
        call (%result), difference, (%P0, %Q11);
        ld.param.u32 %r1, [%result]; st.global.u32 [%rd2], %r1;
    }
    ret;
})");
    const DeviceMemory in(4), out(4);
    *in.as<std::uint32_t>() = 100;
    REQUIRE(run(module, "k", 1, 1, in.address(), out.address()).outcome == exec::Outcome::Finished);
    CHECK(*out.as<std::uint32_t>() == 70);
}

TEST_CASE("memory: narrow loads extend as their type says") {
    const Module module = module_of(R"(
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b16 %rs<9>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    ld.global.s8 %r1, [%rd1]; st.global.u32 [%rd2], %r1;
    ld.global.u8 %r1, [%rd1]; st.global.u32 [%rd2+4], %r1;
    ld.global.s16 %r1, [%rd1]; st.global.u32 [%rd2+8], %r1;
    ld.global.s8 %rs1, [%rd1]; st.global.u16 [%rd2+12], %rs1;
    ld.global.b16 %rs1, [%rd1]; st.global.u16 [%rd2+14], %rs1;
    ld.global.s32 %rd3, [%rd1]; st.global.u64 [%rd2+16], %rd3;
    ld.global.u32 %rd3, [%rd1]; st.global.u64 [%rd2+24], %rd3;
    st.global.u8 [%rd2+32], %rd3;
    ret;
})");
    const DeviceMemory in(8), out(40);
    *in.as<std::uint32_t>() = 0xf1e2d3c4;
    REQUIRE(run(module, "k", 1, 1, in.address(), out.address()).outcome == exec::Outcome::Finished);
    const auto* words = out.as<std::uint32_t>();
    CHECK(words[0] == 0xffffffc4);
    CHECK(words[1] == 0xc4);
    CHECK(words[2] == 0xffffd3c4);
    CHECK(words[3] == 0xd3c4ffc4);
    CHECK(out.as<std::uint64_t>()[2] == 0xfffffffff1e2d3c4);
    CHECK(out.as<std::uint64_t>()[3] == 0xf1e2d3c4);
    CHECK(out.as<std::uint8_t>()[32] == 0xc4);
    CHECK(out.as<std::uint8_t>()[33] == 0xa7);
}

TEST_CASE("memory: shared and local memory start poisoned, in every block anew") {
    const Module module = module_of(R"(
.visible .entry k(.param .u64 out)
{
    .local .align 4 .b8 depot[64]; .shared .align 4 .b8 buffer[64];
    .reg .b64 %rd<9>; .reg .b32 %r<9>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 8; add.u64 %rd1, %rd1, %rd2;
    mov.u64 %rd3, depot; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4;
    ld.local.u32 %r2, [%rd3]; st.local.u32 [%rd3], 0;
    mov.u32 %r4, buffer; ld.shared.u32 %r3, [%r4+8]; st.shared.u32 [%r4+8], 0;
    st.global.v2.u32 [%rd1], {%r2, %r3};
    ret;
})");
    const DeviceMemory out(4 * 8);
    REQUIRE(run(module, "k", 4, 1, out.address()).outcome == exec::Outcome::Finished);
    for (int i = 0; i < 8; ++i) {
        CHECK(out.as<unsigned>()[i] != 0);
        CHECK(out.as<unsigned>()[i] == out.as<unsigned>()[i % 2]);
    }
}

// One atomic by each of many threads on one word, in global and in shared memory, with the total checked.
TEST_CASE("memory: atomics from many blocks on two workers lose nothing") {
    const Module module = module_of(R"(
.visible .entry k(.param .u64 w)
{
    .shared .align 8 .u32 mine[4];
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .f32 %f<4>; .reg .f64 %fd<4>; .reg .pred %p;
    ld.param.u64 %rd1, [w];
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p, %r1, 0;
    @%p bra GO;
    st.shared.u32 [mine], 0; st.shared.f32 [mine+4], 0f00000000;
GO: bar.sync 0;
    atom.global.add.u32 %r2, [%rd1], 3;
    red.global.add.u64 [%rd1+8], 5;
    atom.global.add.f32 %f1, [%rd1+16], 0f3F000000;
    atom.add.f64 %fd1, [%rd1+24], 0d3FD0000000000000;
    red.global.max.s32 [%rd1+32], %r2;
    red.global.min.u32 [%rd1+36], %r2;
    atom.global.inc.u32 %r3, [%rd1+40], 6;
    atom.global.dec.u32 %r3, [%rd1+44], 6;
    atom.shared.add.u32 %r4, [mine], 1;
    atom.shared.add.f32 %f1, [mine+4], 0f3F800000;
    atom.add.release.gpu.u32 %r4, [%rd1+56], 2;
    bar.sync 0;
    @%p bra OUT;
    ld.shared.u32 %r5, [mine]; red.global.add.u32 [%rd1+48], %r5;
    ld.shared.f32 %f2, [mine+4]; red.global.add.f32 [%rd1+52], %f2;
OUT: ret;
})");
    constexpr std::uint32_t kBlocks = 100, kThreads = 96, kAll = kBlocks * kThreads;
    const DeviceMemory words(64);
    std::memset(words.as<char>(), 0, 64);
    words.as<std::uint32_t>()[9] = 0xffffffff;
    exec::Launch launch = module.launch("k", pack(words.address()));
    launch.grid[0] = kBlocks;
    launch.block[0] = kThreads;
    REQUIRE(run(std::move(launch), 2).outcome == exec::Outcome::Finished);
    const auto* w = words.as<std::uint32_t>();
    CHECK(w[0] == 3 * kAll);
    CHECK(words.as<std::uint64_t>()[1] == 5ull * kAll);
    CHECK(words.as<float>()[4] == 0.5f * kAll);
    CHECK(words.as<double>()[3] == 0.25 * kAll);
    CHECK(w[8] == 3 * (kAll - 1));
    CHECK(w[9] == 0);
    CHECK(w[10] == kAll % 7);
    CHECK(w[11] == (7 - kAll % 7) % 7);
    CHECK(w[12] == kAll);
    CHECK(words.as<float>()[13] == kAll);
    CHECK(w[14] == 2 * kAll);
}

// Old value and new value of each atomic, over edge values.
TEST_CASE("memory: what atomics return and leave") {
    using Model = std::function<Bits(Bits, Bits, Bits)>;
    std::vector<InstructionCase> cases;
    const auto add = [&](std::string_view operation, Type type, const Model& model) {
        const bool three = operation == "cas";
        const unsigned w = ptx::bytes_of(type) * 8;
        std::vector<Type> operands(three ? 3 : 2, type);
        const std::string extra = three ? ", %c" : "";
        // In global memory the row's own first word serves as the target; in shared memory a word of the
        // block's.
        cases.push_back({fmt::format("atom.global.{}.{} %d, [%in], %b{}; ld.global.b{} %d, [%in];", operation,
                                     ptx::name_of(type), extra, w),
                         type, operands, [=](const Bits* o) { return model(o[0], o[1], three ? o[2] : 0); }});
        cases.push_back(
            {fmt::format("atom.global.{}.{} %d, [%in], %b{};", operation, ptx::name_of(type), extra), type,
             operands, [](const Bits* o) { return o[0]; }});
        cases.push_back({fmt::format("{{ .shared .align 8 .b64 word; st.shared.b{0} [word], %a; "
                                     "atom.shared.{1}.{2} %d, [word], %b{3}; ld.shared.b{0} %d, [word]; }}",
                                     w, operation, ptx::name_of(type), extra),
                         type, operands, [=](const Bits* o) { return model(o[0], o[1], three ? o[2] : 0); }});
    };
    const auto s32 = [](Bits v) { return static_cast<std::int32_t>(v); };
    for (Type type : {Type::U32, Type::S32, Type::U64})
        add("add", type, [](Bits a, Bits b, Bits) { return a + b; });
    add("min", Type::U32, [](Bits a, Bits b, Bits) { return std::min(a, b); });
    add("max", Type::U32, [](Bits a, Bits b, Bits) { return std::max(a, b); });
    add("min", Type::S32, [=](Bits a, Bits b, Bits) { return s32(a) < s32(b) ? a : b; });
    add("max", Type::S32, [=](Bits a, Bits b, Bits) { return s32(a) > s32(b) ? a : b; });
    add("min", Type::S64, [](Bits a, Bits b, Bits) {
        return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) ? a : b;
    });
    add("max", Type::U64, [](Bits a, Bits b, Bits) { return std::max(a, b); });
    for (Type type : {Type::B32, Type::B64}) {
        add("and", type, [](Bits a, Bits b, Bits) { return a & b; });
        add("or", type, [](Bits a, Bits b, Bits) { return a | b; });
        add("xor", type, [](Bits a, Bits b, Bits) { return a ^ b; });
        add("exch", type, [](Bits, Bits b, Bits) { return b; });
        add("cas", type, [](Bits a, Bits b, Bits c) { return a == b ? c : a; });
    }
    add("cas", Type::B16, [](Bits a, Bits b, Bits c) { return a == b ? c : a; });
    add("inc", Type::U32, [](Bits a, Bits b, Bits) { return a >= b ? 0 : a + 1; });
    add("dec", Type::U32, [](Bits a, Bits b, Bits) { return a == 0 || a > b ? b : a - 1; });
    add("add", Type::F64, [](Bits a, Bits b, Bits) { return bits(f64(a) + f64(b)); });
    check_instructions(cases);
}

float flushed(float a) {
    return std::fabs(a) < 0x1p-126f ? std::copysign(0.0f, a) : a;
}

// f32 sums flush subnormal numbers in global memory and keep them in shared memory.
Bits atomic_result(std::string_view operation, Type type, bool shared, Bits a, Bits b, Bits c) {
    if (type == Type::F32 && !shared) return bits(flushed(flushed(f32(a)) + flushed(f32(b))));
    if (type == Type::F32) return bits(f32(a) + f32(b));
    if (type == Type::F64) return bits(f64(a) + f64(b));
    const unsigned unused = 64 - 8 * ptx::bytes_of(type);
    const auto signed_of = [=](Bits v) { return static_cast<std::int64_t>(v << unused) >> unused; };
    const bool less = ptx::is_signed(type) ? signed_of(a) < signed_of(b) : a < b;
    if (operation == "add") return a + b;
    if (operation == "min") return less ? a : b;
    if (operation == "max") return less ? b : a;
    if (operation == "inc") return a >= b ? 0 : a + 1;
    if (operation == "dec") return a == 0 || a > b ? b : a - 1;
    if (operation == "and") return a & b;
    if (operation == "or") return a | b;
    if (operation == "xor") return a ^ b;
    if (operation == "exch") return b;
    return a == b ? c : a;
}

TEST_CASE("memory: atomics of the table at every scope and order it names") {
    std::vector<InstructionCase> cases;
    for (std::string_view opcode : table_of_run()) {
        if (!opcode.starts_with("atom.") && !opcode.starts_with("red.")) continue;
        std::string_view operation;
        for (std::string_view name : {"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"})
            if (fmt::format(".{}.", opcode).find(fmt::format(".{}.", name)) != std::string::npos)
                operation = name;
        const Type type = ptx::parse_type(opcode.substr(opcode.rfind('.') + 1));
        if (type == Type::F16x2) continue;  // has a case of its own
        CAPTURE(opcode);
        REQUIRE_FALSE(operation.empty());
        const bool shared = opcode.find(".shared.") != std::string_view::npos ||
                            opcode.find(".shared::cluster.") != std::string_view::npos;
        const bool compares = operation == "cas";
        const std::string place = shared ? "[word]" : "[%in]";
        const std::string_view space = shared ? "shared" : "global";
        const unsigned width = ptx::bytes_of(type) * 8;
        cases.push_back({fmt::format("{{ .shared .align 8 .b64 word; st.{0}.b{1} {2}, %a; {3} {4}{2}, %b{5}; "
                                     "ld.{0}.b{1} %d, {2}; }}",
                                     space, width, place, opcode, opcode.starts_with("red") ? "" : "%d, ",
                                     compares ? ", %c" : ""),
                         type, std::vector<Type>(compares ? 3 : 2, type), [=](const Bits* o) {
                             return atomic_result(operation, type, shared, o[0], o[1], compares ? o[2] : 0);
                         }});
    }
    check_instructions(cases);
}

TEST_CASE("memory: atomic sums of halves, one and two, lose nothing") {
    const Module module = module_of(R"(
.visible .entry k(.param .u64 w)
{
    .reg .b64 %rd<2>; .reg .b32 %r<9>; .reg .b16 %h<9>;
    ld.param.u64 %rd1, [w]; mov.u32 %r1, 0x40003c00; mov.u32 %r2, 0x40003f80; mov.b16 %h1, 0x3c00; mov.b16 %h2, 0x3f80;
    atom.add.noftz.f16x2 %r3, [%rd1], %r1; atom.global.add.noftz.bf16x2 %r4, [%rd1+4], %r2;
    atom.global.add.noftz.f16 %h3, [%rd1+8], %h1; atom.add.noftz.bf16 %h4, [%rd1+10], %h2;
    ret;
})");
    const DeviceMemory words(12);
    std::memset(words.as<char>(), 0, 12);
    exec::Launch launch = module.launch("k", pack(words.address()));
    launch.grid[0] = 5;
    launch.block[0] = 20;
    REQUIRE(run(std::move(launch), 2).outcome == exec::Outcome::Finished);
    // 100 and 200, exact in either format.
    CHECK(words.as<std::uint32_t>()[0] == 0x5a405640);
    CHECK(words.as<std::uint32_t>()[1] == 0x434842c8);
    CHECK(words.as<std::uint32_t>()[2] == 0x42c85640);
}

TEST_CASE("memory: an access outside shared memory cannot reach anything else") {
    const Module module = module_of(R"(
.visible .entry k(.param .u32 at)
{
    .shared .align 4 .b8 buffer[64]; .reg .b32 %r<3>;
    ld.param.u32 %r1, [at]; mov.u32 %r2, buffer; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], 1;
    ret;
})");
    CHECK(run(module, "k", 1, 1, 60u).outcome == exec::Outcome::Finished);
    for (unsigned at : {1u << 20, 0x7fffffffu, 0xfffff000u})
        CHECK(run(module, "k", 1, 1, at).outcome == exec::Outcome::IllegalAddress);
}

}  // namespace
}  // namespace simcuda::testing

// Every load and store of the table, in its state space: bytes in, bytes out, narrow values extended.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/ptx/coverage.h"
#include "tests/ptx/device.h"
#include "tools/simcuda/ptx/types.h"

namespace simcuda::testing {
namespace {

constexpr unsigned kAccessThreads = 4;
constexpr unsigned kSlot = 32;  // bytes a thread has in each buffer

struct Access {
    std::string_view opcode;
    bool load = false;
    std::string space;  // "": generic
    ptx::Type type = ptx::Type::None;
    unsigned count = 1;
    std::string policy;  // a further operand

    unsigned bytes() const { return ptx::bytes_of(type); }
    // A register is wider than a narrow value, so that its extension shows.
    unsigned register_bytes() const { return std::max(4u, bytes()); }
};

bool parse(std::string_view opcode, Access& access) {
    access.opcode = opcode;
    access.load = opcode.starts_with("ld.");
    if (!access.load && !opcode.starts_with("st.")) return false;
    if (opcode.starts_with("st.async")) return false;  // has a case of its own
    for (std::string_view rest = opcode.substr(3); !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find('.'));
        rest.remove_prefix(std::min(part.size() + 1, rest.size()));
        if (part == "global" || part == "shared" || part == "local" || part == "const" || part == "param")
            access.space = part;
        if (part == "shared::cluster") access.space = "shared";  // where a block's own is at its address too
        if (part == "v2" || part == "v4") access.count = static_cast<unsigned>(part[1] - '0');
        if (part == "L2::cache_hint") access.policy = ", %policy";
        if (const ptx::Type type = ptx::parse_type(part); type != ptx::Type::None) access.type = type;
    }
    return true;
}

std::string register_list(const Access& access) {
    std::string list;
    for (unsigned i = 0; i < access.count; ++i) list += fmt::format("{}%v{}", i ? ", " : "", i);
    return access.count == 1 ? list : "{" + list + "}";
}

// Copies bytes from [%in] to `to`, or from `from` to [%out], one by one.
std::string copy_bytes(std::string_view load, std::string_view from, std::string_view store,
                       std::string_view to, unsigned bytes) {
    std::string text;
    for (unsigned i = 0; i < bytes; ++i)
        text += fmt::format("  {}.u8 %byte, [{}+{}]; {}.u8 [{}+{}], %byte;\n", load, from, i, store, to, i);
    return text;
}

// One kernel: what the instruction loads goes to `out`, a register after the other; or what it stores, read
// back.
std::string kernel_of(const Access& access, unsigned index) {
    const bool real = access.type == ptx::Type::F32 || access.type == ptx::Type::F64;
    const unsigned width = access.register_bytes() * 8;
    const std::string list = register_list(access);
    const std::string space = access.space.empty() ? "global" : access.space;
    std::string text = fmt::format(
        ".visible .entry access{}(.param .u64 input, .param .u64 output, .param .align 16 .b8 "
        "bytes[32])\n{{\n"
        "  .reg .b64 %in, %out, %at, %offset, %policy; .reg .b32 %byte, %thread; .reg .{}{} %v<4>;\n"
        "  .shared .align 16 .b8 shared_bytes[{}]; .local .align 16 .b8 local_bytes[32];\n"
        "  ld.param.u64 %in, [input]; ld.param.u64 %out, [output]; mov.u32 %thread, %tid.x;\n"
        "  mul.wide.u32 %offset, %thread, {}; cvta.to.global.u64 %in, %in; add.u64 %in, %in, %offset;\n"
        "  add.u64 %out, %out, %offset; createpolicy.fractional.L2::evict_last.b64 %policy, 1.0;\n",
        index, real ? "f" : "b", width, kAccessThreads * kSlot, kSlot);
    if (space == "shared") text += "  mov.u64 %at, shared_bytes; add.u64 %at, %at, %offset;\n";
    if (space == "local") text += "  mov.u64 %at, local_bytes;\n";
    if (space == "const") text += "  mov.u64 %at, constant_bytes; add.u64 %at, %at, %offset;\n";
    if (access.load) {
        std::string_view from = space == "global" ? "%in" : space == "param" ? "bytes" : "%at";
        if (space == "shared" || space == "local")
            text += copy_bytes("ld.global", "%in", "st." + space, "%at", 16);
        text += fmt::format("  {} {}, [{}]{};\n", access.opcode, list, from, access.policy);
        for (unsigned i = 0; i < access.count; ++i)
            text += fmt::format("  st.global.b{} [%out+{}], %v{};\n", width, i * width / 8, i);
    } else {
        for (unsigned i = 0; i < access.count; ++i)
            text += access.bytes() < 4
                        ? fmt::format("  ld.global.u{} %v{}, [%in+{}];\n", access.bytes() * 8, i,
                                      i * access.bytes())
                        : fmt::format("  ld.global.b{} %v{}, [%in+{}];\n", width, i, i * access.bytes());
        const unsigned bytes = access.bytes() * access.count;
        if (space == "param") {
            text += fmt::format(
                "  {{ .param .b64 to; .param .align 16 .b8 what[16]; st.param.b64 [to], %out;\n"
                "  {} [what], {}; call.uni put{}, (to, what); }}\n",
                access.opcode, list, bytes);
        } else {
            text += fmt::format("  {} [{}], {}{};\n", access.opcode, space == "global" ? "%out" : "%at", list,
                                access.policy);
            if (space != "global") text += copy_bytes("ld." + space, "%at", "st.global", "%out", bytes);
        }
    }
    return text + "  ret;\n}\n";
}

std::string put_function(unsigned bytes) {
    return fmt::format(
               ".func put{}(.param .b64 to, .param .align 16 .b8 what[16])\n{{\n"
               "  .reg .b64 %out; .reg .b32 %byte; ld.param.b64 %out, [to];\n",
               bytes) +
           copy_bytes("ld.param", "what", "st.global", "%out", bytes) + "  ret;\n}\n";
}

// What the bytes at `from` become in registers.
std::vector<std::uint8_t> loaded(const Access& access, const std::uint8_t* from) {
    std::vector<std::uint8_t> result;
    for (unsigned i = 0; i < access.count; ++i) {
        const std::uint8_t* element = from + i * access.bytes();
        const bool negative = ptx::is_signed(access.type) && element[access.bytes() - 1] >= 0x80;
        for (unsigned b = 0; b < access.register_bytes(); ++b)
            result.push_back(b < access.bytes() ? element[b] : negative ? 0xff : 0);
    }
    return result;
}

TEST_CASE("access: every load and store of the table moves its bytes and no others") {
    std::vector<Access> accesses;
    for (std::string_view opcode : table_of_run())
        if (Access access; parse(opcode, access)) accesses.push_back(access);
    REQUIRE(accesses.size() > 100);

    std::uint8_t bytes[kAccessThreads * kSlot];
    for (unsigned i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<std::uint8_t>(0x81 + 37 * i);
    std::string text = fmt::format(
        ".version 8.0\n.target sm_80\n.address_size 64\n.func together() {{ ret; }}\n"
        ".const .align 16 .b8 constant_bytes[{}] = {{{}}};\n",
        sizeof bytes, fmt::join(bytes, ", "));
    text += put_function(4) + put_function(8);
    for (unsigned i = 0; i < accesses.size(); ++i) {
        std::string kernel = kernel_of(accesses[i], i);
        kernel.insert(kernel.find("  ret;"), "  mov.u64 %at, together;\n");
        text += kernel;
    }
    const Module module(text);
    const DeviceMemory input(sizeof bytes), output(sizeof bytes);
    std::memcpy(input.as<char>(), bytes, sizeof bytes);
    struct Parameter {
        alignas(16) std::uint8_t bytes[32];
    } parameter;
    std::memcpy(parameter.bytes, bytes, sizeof parameter.bytes);

    for (unsigned i = 0; i < accesses.size(); ++i) {
        const Access& access = accesses[i];
        CAPTURE(access.opcode);
        std::memset(output.as<char>(), 0x5a, sizeof bytes);
        const std::string name = fmt::format("access{}", i);
        const Result result =
            run(module, name, 1, kAccessThreads, input.address(), output.address(), parameter);
        REQUIRE_MESSAGE(result.outcome == exec::Outcome::Finished, result.message);
        for (unsigned thread = 0; thread < kAccessThreads; ++thread) {
            const std::uint8_t* from =
                access.space == "param" && access.load ? bytes : bytes + thread * kSlot;
            std::vector<std::uint8_t> wanted =
                access.load ? loaded(access, from)
                            : std::vector<std::uint8_t>(from, from + access.bytes() * access.count);
            wanted.resize(kSlot, 0x5a);
            const auto* out = output.as<std::uint8_t>() + thread * kSlot;
            CHECK(std::vector<std::uint8_t>(out, out + kSlot) == wanted);
        }
    }
}

// As Triton writes them: braces stand around one register too. What a cache is told changes no value, and
// what a grid waits for is there before it begins.
TEST_CASE("access: one register in braces, hints to caches, policies, the control of dependent grids") {
    const Module module(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<3>;
    griddepcontrol.wait;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;
    createpolicy.fractional.L2::evict_last.b64 %rd4, 0.5;
    createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd4, 0.25;
    createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd5, [%rd1], 32, 64;
    createpolicy.cvt.L2.b64 %rd6, %rd4;
    prefetch.global.L1 [%rd1]; prefetch.global.L2 [%rd1+16]; prefetch.global.L2::evict_last [%rd1]; prefetchu.L1 [%rd1];
    applypriority.global.L2::evict_normal [%rd1], 128;
    setp.eq.u64 %p1, %rd1, %rd1;
    @%p1 ld.global.L1::evict_last.L2::cache_hint.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ], %rd3;
    @!%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];
    griddepcontrol.launch_dependents;
    st.global.L1::evict_first.L2::cache_hint.v2.b32 [ %rd2 + 0 ], { %r4, %r3 }, %rd6;
    @%p1 st.global.b32 [ %rd2 + 8 ], { %r2 };
    .shared .align 4 .b32 word; st.shared.b32 [ word + 0 ], { %r2 }; mov.b32 { %r2 }, %r1; ld.shared.b32 { %r1 }, [ word + 0 ];
    @!%p1 st.global.b32 [ %rd2 + 8 ], { %r1 };
    @!%p1 st.global.b32 [ %rd2 + 0 ], { %r2 };
    ret;
})");
    const DeviceMemory in(16), out(16);
    for (unsigned i = 0; i < 4; ++i) in.as<unsigned>()[i] = 10 + i;
    out.as<unsigned>()[3] = 7;
    REQUIRE(run(module, "k", 1, 1, in.address(), out.address()).outcome == exec::Outcome::Finished);
    const unsigned wanted[] = {13, 12, 11, 7};
    CHECK(std::memcmp(out.as<char>(), wanted, sizeof wanted) == 0);
}

// Those of the table, and one of each kind beside it.
TEST_CASE("access: what is not translated is refused by its name, and spoils no other kernel") {
    std::vector<std::string_view> refused(table_of_refused().begin(), table_of_refused().end());
    REQUIRE_FALSE(refused.empty());
    for (std::string_view opcode : {"mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
                                    "mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32",
                                    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
                                    "wmma.mma.sync.aligned.row.col.m16n16k8.f32.f32",
                                    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
                                    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
                                    "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8",
                                    "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b6x16_p32",
                                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
                                    "cp.reduce.async.bulk.global.shared::cta.add.u32",
                                    "mbarrier.arrive.expect_tx.shared.b64",
                                    "vmad.s32.s32.s32",
                                    "vadd.s32.s32.s32.sat",
                                    "vsub.s32.s32.s32.min",
                                    "cvt.rn.satfinite.e2m1x2.f32",
                                    "cvt.rn.e4m3x2.f32",
                                    "atom.global.exch.b128",
                                    "red.async.relaxed.cluster.global.add.u32",
                                    "barrier.cluster.arrive",
                                    "fence.proxy.async",
                                    "tex.grad.2d.v4.f32.f32",
                                    "sured.b.add.2d.u32.trap",
                                    "suld.p.2d.v4.f32.trap",
                                    "griddepcontrol.launch",
                                    "alloca.u64"})
        refused.push_back(opcode);
    std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n.entry fine() { ret; }\n";
    for (std::size_t i = 0; i < refused.size(); ++i)
        text += fmt::format(
            ".entry refused{}() {{ .reg .b32 %r<4>; .reg .b64 %rd<2>; {} {{%r0, %r1}}, [%rd0], %r2; ret; "
            "}}\n",
            i, refused[i]);
    const Module module(text);
    for (std::size_t i = 0; i < refused.size(); ++i)
        CHECK(module.kernel(fmt::format("refused{}", i)).unsupported == refused[i]);
    CHECK(run(module, "fine", 1, 1).outcome == exec::Outcome::Finished);
}

}  // namespace
}  // namespace simcuda::testing

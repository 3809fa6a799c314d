// ldmatrix, stmatrix and movmatrix: rows of 8x8 matrices between shared memory and the lanes of a warp.
#include <doctest/doctest.h>

#include "tests/ptx/device.h"
#include "tests/ptx/matrix.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

// A warp's matrices in shared memory: row r of matrix i begins at 16 * (8 * i + r), in reverse order.
std::string rows_kernel(unsigned count, bool transposed, bool generic) {
    const std::string suffix = fmt::format("sync.aligned.m8n8.x{}{}{}.b16", count, transposed ? ".trans" : "",
                                           generic ? "" : ".shared");
    return std::string(kMatrixHead) + fmt::format(R"(
.visible .entry k(.param .u64 out, .param .u64 in)
{{
    .shared .align 16 .b8 rows[512]; .shared .align 16 .b8 back[512];
    .reg .b64 %p<9>; .reg .b32 %r<9>; .reg .b32 %s<9>; .reg .b64 %q<9>;
    ld.param.u64 %p0, [out]; ld.param.u64 %p1, [in]; mov.u32 %s0, %laneid; mad.wide.u32 %p2, %s0, 16, %p1;
    ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%p2]; mov.u32 %s1, rows; sub.u32 %s2, 31, %s0; mad.lo.u32 %s3, %s2, 16, %s1;
    st.shared.v4.b32 [%s3], {{%r0, %r1, %r2, %r3}}; mov.u32 %s4, back; mad.lo.u32 %s4, %s0, 16, %s4;
    mov.b32 %r0, 0; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0; st.shared.v4.b32 [%s4], {{%r0, %r1, %r2, %r3}};
    bar.warp.sync 0xffffffff;
    cvt.u64.u32 %q0, %s3; cvta.shared.u64 %q0, %q0; cvt.u64.u32 %q1, %s4; cvta.shared.u64 %q1, %q1;
    ldmatrix.{0} {1}, [{2}];
    stmatrix.{0} [{3}], {1};
    mad.wide.u32 %p3, %s0, 32, %p0; st.global.v4.b32 [%p3], {{%r0, %r1, %r2, %r3}};
    bar.warp.sync 0xffffffff;
    ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%s4]; st.global.v4.b32 [%p3+16], {{%r0, %r1, %r2, %r3}};
    ret;
}}
)",
                                                  suffix, registers('r', count), generic ? "%q0" : "%s3",
                                                  generic ? "%q1" : "%s4");
}

TEST_CASE("ldmatrix, stmatrix: one, two and four matrices, transposed and not") {
    const DeviceMemory in(512), out(1024);
    for (unsigned i = 0; i < 256; ++i) in.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(i * 257 + 3);
    for (const unsigned count : {1u, 2u, 4u})
        for (const bool transposed : {false, true})
            for (const bool generic : {false, true}) {
                const Module module(rows_kernel(count, transposed, generic));
                REQUIRE(run(module, "k", 1, 32, out.address(), in.address()).outcome == Outcome::Finished);
                const auto* words = out.as<std::uint32_t>();
                for (unsigned lane = 0; lane < 32; ++lane) {
                    for (unsigned matrix = 0; matrix < 4; ++matrix) {
                        std::uint32_t wanted = 0;
                        for (unsigned part = 0; part < 2; ++part) {
                            const unsigned far = lane / 4, near = lane % 4 * 2 + part;
                            const unsigned row = transposed ? near : far, column = transposed ? far : near;
                            wanted |= std::uint32_t{in.as<std::uint16_t>()[(matrix * 8 + row) * 8 + column]}
                                      << part * 16;
                        }
                        REQUIRE(words[lane * 8 + matrix] == (matrix < count ? wanted : 0));
                    }
                    // What was stored is what was loaded, row by row; rows of other matrices are as they
                    // were.
                    for (unsigned i = 0; i < 4; ++i) {
                        std::uint32_t wanted;
                        std::memcpy(&wanted, in.as<char>() + lane * 16 + i * 4, 4);
                        REQUIRE(words[lane * 8 + 4 + i] == (lane / 8 < count ? wanted : 0));
                    }
                }
            }
}

TEST_CASE("ldmatrix: a row that is not there is a fault; forms of 8 bits are refused by name") {
    const auto kernel = [](std::string_view body) {
        return std::string(kMatrixHead) +
               ".visible .entry k(.param .u32 a)\n{ .shared .align 16 .b8 s[512]; .reg .b32 %r<9>;\n"
               " ld.param.u32 %r0, [a]; " +
               std::string(body) + " ret; }\n";
    };
    const Module module(
        kernel("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0]; st.shared.u32 [s], %r1;"));
    CHECK(run(module, "k", 1, 32, 0x100000u).outcome == Outcome::IllegalAddress);
    for (const std::string opcode : {"ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
                                     "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64",
                                     "mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32",
                                     "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"}) {
        const Module refused(kernel(opcode + " {%r1, %r2}, [%r0];"));
        CHECK(refused.kernel("k").unsupported == opcode);
    }
}

TEST_CASE("matrix rows: movmatrix transposes; matrices move in several warps at once") {
    const Module module(std::string(kMatrixHead) + R"(
.visible .entry k(.param .u64 out)
{
    .reg .b64 %p<4>; .reg .b32 %r<9>;
    ld.param.u64 %p0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %p1, %r0, 4, %p0;
    mad.lo.u32 %r1, %r0, 0x20002, 0x10000;
    movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;
    st.global.b32 [%p1], %r2;
    ret;
})");
    const DeviceMemory out(4 * 96);
    REQUIRE(run(module, "k", 1, 96, out.address()).outcome == Outcome::Finished);
    for (unsigned i = 0; i < 96; ++i)
        for (unsigned part = 0; part < 2; ++part) {
            const unsigned lane = i % 32, row = lane % 4 * 2 + part, column = lane / 4;
            const unsigned source = i / 32 * 32 + row * 4 + column / 2;
            CHECK(out.as<std::uint16_t>()[i * 2 + part] == (source * 2 + column % 2));
        }
}

}  // namespace
}  // namespace simcuda::testing

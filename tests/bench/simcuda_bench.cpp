// Speed of translated kernels on one host thread, per simulated operation.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <string>

#include "tests/ptx/device.h"

namespace {

using simcuda::testing::DeviceMemory;
using simcuda::testing::Module;
using simcuda::testing::pack;

constexpr std::string_view kHead = ".version 8.0\n.target sm_75\n.address_size 64\n";

// nvcc's code for C[y][x] = sum of A[y][k] * B[k][x], its inner loop unrolled four times.
constexpr std::string_view kSgemm = R"(
.visible .entry sgemm(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<4>; .reg .f32 %f<16>; .reg .b32 %r<16>; .reg .b64 %rd<24>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;
    mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ntid.y; mov.u32 %r8, %tid.y; mad.lo.s32 %r9, %r6, %r7, %r8;
    mul.lo.s32 %r10, %r9, %r1;
    mul.wide.s32 %rd4, %r10, 4; add.s64 %rd5, %rd1, %rd4;
    mul.wide.s32 %rd6, %r5, 4; add.s64 %rd7, %rd2, %rd6;
    mul.wide.s32 %rd8, %r1, 4;
    mov.f32 %f1, 0f00000000; mov.u32 %r11, 0;
LOOP:
    ld.global.f32 %f2, [%rd5]; ld.global.f32 %f3, [%rd7]; fma.rn.f32 %f1, %f2, %f3, %f1; add.s64 %rd7, %rd7, %rd8;
    ld.global.f32 %f4, [%rd5+4]; ld.global.f32 %f5, [%rd7]; fma.rn.f32 %f1, %f4, %f5, %f1; add.s64 %rd7, %rd7, %rd8;
    ld.global.f32 %f6, [%rd5+8]; ld.global.f32 %f7, [%rd7]; fma.rn.f32 %f1, %f6, %f7, %f1; add.s64 %rd7, %rd7, %rd8;
    ld.global.f32 %f8, [%rd5+12]; ld.global.f32 %f9, [%rd7]; fma.rn.f32 %f1, %f8, %f9, %f1; add.s64 %rd7, %rd7, %rd8;
    add.s64 %rd5, %rd5, 16; add.s32 %r11, %r11, 4; setp.lt.s32 %p1, %r11, %r1;
    @%p1 bra LOOP;
    add.s32 %r12, %r10, %r5; mul.wide.s32 %rd9, %r12, 4; add.s64 %rd10, %rd3, %rd9;
    st.global.f32 [%rd10], %f1;
    ret;
}
)";

constexpr std::string_view kTriad = R"(
.visible .entry triad(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p, %r5, %r1;
    @%p bra DONE;
    mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4; add.s64 %rd7, %rd3, %rd4;
    ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6]; fma.rn.f32 %f3, %f2, 0f40400000, %f1; st.global.f32 [%rd7], %f3;
DONE: ret;
}
)";

// `%r1` rounds of one instruction that makes threads wait for one another.
std::string rounds_of(std::string_view instruction) {
    return fmt::format(R"({}
.visible .entry rounds(.param .u32 n)
{{
    .reg .u32 %r<4>; .reg .pred %p;
    ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;
LOOP: {}
    sub.u32 %r1, %r1, 1; setp.ne.u32 %p, %r1, 0;
    @%p bra LOOP;
    ret;
}})",
                       kHead, instruction);
}

void run_checked(simcuda::exec::Launch launch, benchmark::State& state) {
    if (simcuda::testing::run(std::move(launch)).outcome != simcuda::exec::Outcome::Finished)
        state.SkipWithError("the kernel failed");
}

void sgemm(benchmark::State& state) {
    constexpr std::uint32_t n = 256;
    const Module module(std::string(kHead) + std::string(kSgemm));
    const DeviceMemory a(n * n * 4), b(n * n * 4), c(n * n * 4);
    for (const DeviceMemory* matrix : {&a, &b}) std::fill_n(matrix->as<float>(), n * n, 1.0f);
    for (auto _ : state) {
        auto launch = module.launch("sgemm", pack(a.address(), b.address(), c.address(), n));
        launch.grid[0] = launch.grid[1] = n / 16;
        launch.block[0] = launch.block[1] = 16;
        run_checked(std::move(launch), state);
    }
    state.counters["fma"] =
        benchmark::Counter(double{n} * n * n, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(sgemm)->Unit(benchmark::kMillisecond);

void triad(benchmark::State& state) {
    constexpr std::uint32_t n = 1 << 20;
    const Module module(std::string(kHead) + std::string(kTriad));
    const DeviceMemory a(n * 4), b(n * 4), c(n * 4);
    for (const DeviceMemory* vector : {&a, &b}) std::fill_n(vector->as<float>(), n, 1.0f);
    for (auto _ : state) {
        auto launch = module.launch("triad", pack(a.address(), b.address(), c.address(), n));
        launch.grid[0] = n / 256;
        launch.block[0] = 256;
        run_checked(std::move(launch), state);
    }
    state.counters["threads"] = benchmark::Counter(n, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(triad)->Unit(benchmark::kMillisecond);

void rounds(benchmark::State& state, std::string_view instruction) {
    constexpr std::uint32_t kThreads = 256, kRounds = 1000;
    const Module module(rounds_of(instruction));
    for (auto _ : state) {
        auto launch = module.launch("rounds", pack(kRounds));
        launch.block[0] = kThreads;
        run_checked(std::move(launch), state);
    }
    state.counters["waits"] =
        benchmark::Counter(double{kThreads} * kRounds, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(rounds, barrier, "bar.sync 0;")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(rounds, shuffle, "shfl.sync.bfly.b32 %r2, %r2, 1, 31, -1;")->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();

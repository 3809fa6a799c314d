// Faults, traps, kernels that never end, and what happens to the process they run in.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <xmmintrin.h>

#include <atomic>
#include <thread>

#include "tests/ptx/device.h"
#include "tests/support/child.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

const Module& faults() {
    static const Module module(R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 to) { .reg .b64 %rd; ld.param.u64 %rd, [to]; st.global.u32 [%rd], 1; ret; }
.visible .entry store_one(.param .u64 to)
{
    .reg .b64 %rd<3>; .reg .b32 %r<4>; .reg .pred %p;
    ld.param.u64 %rd1, [to]; mov.u32 %r1, %ctaid.x; bar.sync 0; setp.ne.u32 %p, %r1, 70; @%p ret;
    st.global.u32 [%rd1], 1; ret;
}
.visible .entry trap() { trap; ret; }
.visible .entry endless() { .reg .b32 %r; mov.u32 %r, 0; L: add.u32 %r, %r, 1; .pragma "nounroll"; mov.u32 %r, %clock; bra L; }
.visible .entry endless_wait(.param .u64 flag)
{ .reg .b64 %rd; .reg .b32 %r; .reg .pred %p; ld.param.u64 %rd, [flag]; L: ld.volatile.global.u32 %r, [%rd]; setp.ne.u32 %p, %r, 77; @%p bra L; ret; }
.visible .entry stuck()
{ .reg .b32 %r; .reg .pred %p; mov.u32 %r, %tid.x; setp.eq.u32 %p, %r, 0; @%p bra L; bar.sync 1; L: bar.sync 2; ret; }
.visible .entry run_or_fault(.param .u64 flag)
{
    .reg .b64 %rd; .reg .b32 %r; .reg .pred %p; ld.param.u64 %rd, [flag]; mov.u32 %r, %ctaid.x; setp.eq.u32 %p, %r, 1; @%p bra WAIT;
    st.volatile.global.u32 [%rd], 77;
RUN: mov.u32 %r, %clock; bra RUN;
WAIT: ld.volatile.global.u32 %r, [%rd]; setp.ne.u32 %p, %r, 77; @%p bra WAIT;
    st.global.u32 [0], 1; ret;
}
.visible .func deep(.param .b32 n)
{
    .local .align 4 .b8 depot[4096]; .reg .b64 %l; .reg .b32 %r; mov.u64 %l, depot; ld.param.b32 %r, [n]; st.local.u32 [%l], %r;
    { .param .b32 p; st.param.b32 [p], %r; call deep, (p); }
    ld.local.u32 %r, [%l]; st.local.u32 [%l+4], %r; ret;
}
.visible .entry overflow() { { .param .b32 p; st.param.b32 [p], 1; call deep, (p); } ret; }
.global .align 1 .b8 message[6] = {110, 32, 62, 32, 50};
.global .align 1 .b8 file[5] = {97, 46, 99, 117};
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.visible .entry asserts()
{
    .reg .b64 %rd<3>; mov.u64 %rd1, message; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, file; cvta.global.u64 %rd2, %rd2;
    { .param .b64 p0; st.param.b64 [p0], %rd1; .param .b64 p1; st.param.b64 [p1], %rd2; .param .b32 p2; st.param.b32 [p2], 12; .param .b64 p3; st.param.b64 [p3], %rd2; .param .b64 p4; st.param.b64 [p4], 1;
      call.uni __assertfail, (p0, p1, p2, p3, p4); }
    ret;
}
)");
    return module;
}

TEST_CASE("fault: an access to what is not mapped names its device address") {
    const DeviceMemory memory(0x10000);
    CHECK(run(faults(), "store", 1, 1, memory.address() + 0xfffc).outcome == Outcome::Finished);
    int host = 0;
    const DeviceAddress bad[] = {memory.address() + 0x10000, 0, 8, kDeviceWindowEnd - 8,
                                 reinterpret_cast<std::uint64_t>(&host)};
    for (const DeviceAddress address : bad) {
        const Result result = run(faults(), "store", 3, 64, address);
        CHECK(result.outcome == Outcome::IllegalAddress);
        CHECK(result.fault_address == address);
        const Result fiber = run(faults(), "store_one", 100, 64, address);
        CHECK(fiber.outcome == Outcome::IllegalAddress);
        CHECK(fiber.fault_address == address);
    }
    CHECK(host == 0);
    CHECK(run(faults(), "store", 1, 1, std::uint64_t{0x1234567812345678}).outcome == Outcome::IllegalAddress);
    // The next launch is none the worse for it.
    CHECK(run(faults(), "store", 1, 1, memory.address()).outcome == Outcome::Finished);
    CHECK(*memory.as<unsigned>() == 1);
}

TEST_CASE("fault: no block starts after a failure") {
    const Module counts(R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 count) { .reg .b64 %rd; .reg .b32 %r; .reg .pred %p; ld.param.u64 %rd, [count]; mov.u32 %r, %ctaid.x; red.global.add.u32 [%rd], 1; setp.eq.u32 %p, %r, 10; @%p trap; ret; })");
    const DeviceMemory count(4);
    *count.as<unsigned>() = 0;
    CHECK(run(counts, "k", 1000, 1, count.address()).outcome == Outcome::Trap);
    CHECK(*count.as<unsigned>() == 11);
}

TEST_CASE("fault: trap and failed assertions") {
    CHECK(run(faults(), "trap", 1, 1).outcome == Outcome::Trap);
    CHECK(run(faults(), "asserts", 1, 1).outcome == Outcome::Assert);
}

TEST_CASE("fault: kernels that never end are stopped by their limit, on every worker") {
    const DeviceMemory flag(4);
    for (const char* kernel : {"endless", "endless_wait"}) {
        exec::Launch launch = faults().launch(kernel, pack(flag.address()));
        launch.grid[0] = 20;
        launch.time_limit_ns = 30'000'000;
        CHECK(run(std::move(launch), 2).outcome == Outcome::Timeout);
    }
}

TEST_CASE("fault: threads that wait at different barriers for ever are found out without a limit") {
    CHECK(run(faults(), "stuck", 1, 2).outcome == Outcome::Timeout);
}

TEST_CASE("fault: a failure stops what runs on other workers, though it never looks up") {
    const DeviceMemory flag(4);
    exec::Launch launch = faults().launch("run_or_fault", pack(flag.address()));
    launch.grid[0] = 2;
    const Result result = run(std::move(launch), 2);
    CHECK(result.outcome == Outcome::IllegalAddress);
    CHECK(result.fault_address == 0);
}

TEST_CASE("fault: a stack that overflows is a fault, not the neighbour's ruin") {
    CHECK(run(faults(), "overflow", 1, 64).outcome == Outcome::IllegalAddress);
}

TEST_CASE("fault: guarded work reports the address it could not reach") {
    const DeviceMemory memory(4096);
    const auto touch = [](void* address) { *static_cast<volatile int*>(address) = 5; };
    DeviceAddress fault = 1;
    CHECK(exec::guarded(touch, memory.as<void>(), &fault));
    CHECK(*memory.as<int>() == 5);
    CHECK_FALSE(exec::guarded(touch, to_host(memory.address() + 0x10000), &fault));
    CHECK(fault == memory.address() + 0x10000);
}

TEST_CASE(
    "fault: a thread that blocks all signals and flushes denormals runs kernels like any other, and keeps "
    "its "
    "ways") {
    const Module module(R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry halve(.param .u64 to) { .reg .b64 %rd; .reg .f32 %f; ld.param.u64 %rd, [to]; ld.global.f32 %f, [%rd]; mul.f32 %f, %f, 0f3F000000; st.global.f32 [%rd], %f; ret; })");
    const DeviceMemory memory(4);
    *memory.as<std::uint32_t>() = 0x00800000;
    sigset_t all, before, after;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    const Outcome fine = run(module, "halve", 1, 1, memory.address()).outcome;
    const Outcome faulting = run(faults(), "store", 1, 1, std::uint64_t{8}).outcome;
    const unsigned mode_after = _mm_getcsr();
    _mm_setcsr(mode);
    pthread_sigmask(SIG_SETMASK, &before, &after);
    CHECK(fine == Outcome::Finished);
    CHECK(*memory.as<std::uint32_t>() == 0x00400000);
    CHECK(faulting == Outcome::IllegalAddress);
    CHECK((mode_after & 0xffc0) == ((mode | 0x8040) & 0xffc0));
    CHECK(sigismember(&after, SIGSEGV) == 1);
}

std::atomic<int> g_handled{0};
void* g_page = nullptr;

TEST_CASE("fault: faults of the program itself go where the program sends them") {
    // To its handler, installed before or after ours.
    const auto handler = [](int, siginfo_t*, void*) {
        ++g_handled;
        mprotect(g_page, 4096, PROT_READ | PROT_WRITE);
    };
    static struct sigaction action;
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    CHECK(support::in_child([] {
              g_page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              sigaction(SIGSEGV, &action, nullptr);
              if (run(faults(), "store", 1, 1, std::uint64_t{8}).outcome != Outcome::IllegalAddress) return 1;
              *static_cast<volatile int*>(g_page) = 1;
              if (g_handled != 1) return 2;
              // Installed over ours: the next launch takes its place in front again.
              sigaction(SIGSEGV, &action, nullptr);
              mprotect(g_page, 4096, PROT_NONE);
              if (run(faults(), "store", 1, 1, std::uint64_t{8}).outcome != Outcome::IllegalAddress) return 3;
              *static_cast<volatile int*>(g_page) = 1;
              return g_handled == 2 ? 0 : 4;
          }) == 0);
    // And without one, to its end.
    CHECK(support::in_child([] {
              signal(SIGSEGV, SIG_DFL);
              run(faults(), "store", 1, 1, std::uint64_t{8});
              *static_cast<volatile int*>(nullptr) = 1;
              return 0;
          }) == 128 + SIGSEGV);
}

}  // namespace
}  // namespace simcuda::testing

// LMS_EXEMPT: what libraries of those names allocate is left alone, and what they launch may reach anything.
#include <dlfcn.h>
#include <malloc.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/rig.h"
#include "tests/support/process.h"

using namespace rig;

namespace {

using Action = std::function<void()>;

// Runs `action` with the library among its callers.
void within(const char* library, const Action& action) {
    void* const handle = dlopen((support::build_dir() + "/entry/" + library).c_str(), RTLD_NOW);
    EXPECT(handle != nullptr);
    using CallBack = int (*)(int (*)(void*), void*);
    const auto call_back = reinterpret_cast<CallBack>(dlsym(handle, "call_back"));
    EXPECT(call_back != nullptr);
    call_back(
        [](void* argument) {
            (*static_cast<const Action*>(argument))();
            return 0;
        },
        const_cast<Action*>(&action));
}

// Managed memory is mapped, the driver's own is not.
bool is_managed(CUdeviceptr address) {
    CUmemGenericAllocationHandle handle = 0;
    if (SIM(cuMemRetainAllocationHandle)(&handle, reinterpret_cast<void*>(address)) != CUDA_SUCCESS)
        return false;
    SIM(cuMemRelease)(handle);
    return true;
}

bool allocates_managed(const char* library) {
    CUdeviceptr address = 0;
    within(library, [&] { OK(cuMemAlloc_v2, &address, kBuffer); });
    const bool managed = is_managed(address);
    OK(cuMemsetD8_v2, address, 1, kBuffer);
    OK(cuMemFree_v2, address);
    within(library, [&] { OK(cuMemAllocAsync, &address, kBuffer, nullptr); });
    EXPECT(is_managed(address) == managed);
    OK(cuMemFreeAsync, address, nullptr);
    return managed;
}

CUdeviceptr allocate() {
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2, &address, kBuffer);
    return address;
}

}  // namespace

BODY(exempt_by_default) {
    const Gpu gpu;
    // Loaded after the first look, and among others.
    EXPECT(is_managed(allocate()));
    EXPECT(allocates_managed("libother.so.2"));
    EXPECT(!allocates_managed("libnccl.so.2"));
    EXPECT(allocates_managed("libother.so.2"));
    EXPECT(is_managed(allocate()));
}

BODY(exempt_named) {
    const Gpu gpu;
    EXPECT(!allocates_managed("libother.so.2"));
    EXPECT(allocates_managed("libnccl.so.2"));
}

// As a program does that compiles code while it runs.
BODY(exempt_loads) {
    const Gpu gpu;
    constexpr std::size_t kLoads = 1000;
    const auto growth = [](bool ask) {
        const std::size_t before = mallinfo2().uordblks;
        for (std::size_t i = 0; i < kLoads; ++i) {
            void* const handle = dlopen((support::build_dir() + "/entry/libother.so.2").c_str(), RTLD_NOW);
            EXPECT(handle != nullptr);
            if (ask) OK(cuMemFree_v2, allocate());
            dlclose(handle);
        }
        const std::size_t after = mallinfo2().uordblks;
        return after > before ? after - before : 0;
    };
    growth(true);
    growth(false);
    EXPECT(growth(true) < growth(false) + kLoads);
}

BODY(exempt_none) {
    const Gpu gpu;
    EXPECT(allocates_managed("libother.so.2"));
    EXPECT(allocates_managed("libnccl.so.2"));
}

TEST_CASE("exempt: allocations of NCCL's are the driver's, those of others are managed") {
    run_both("exempt_by_default", Driver::Simulated, {});
}

TEST_CASE("exempt: what is known of loads does not grow with them") {
    run_both("exempt_loads", Driver::Simulated, {});
}

TEST_CASE("exempt: LMS_EXEMPT names other libraries, or none") {
    const std::string said =
        run_both("exempt_named", Driver::Simulated, {{"LMS_EXEMPT", "libsome,libucs,libother.so"}});
    CHECK_MESSAGE(said.find("LMS_EXEMPT: no library was loaded whose file name begins with libsome\n") !=
                      std::string::npos,
                  said);
    CHECK(run_both("exempt_none", Driver::Simulated, {{"LMS_EXEMPT", "none"}}).find("LMS_EXEMPT") ==
          std::string::npos);
}

// The kernel's arguments do not show the buffer it reads. Were it taken away, where evicted memory is
// unmapped the kernel would fault.
FAMILY_TEST("exempt: nothing moves while a launch of such a library is unfinished", "exempt-launch") {
    const Gpu gpu;
    const Buffer hidden(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    crowd.press();
    crowd.bring_in(hidden);
    crowd.bring_in(out);
    struct Map {
        alignas(64) std::uint64_t words[16] = {};
    } map;
    map.words[2] = ~hidden.at();
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    // Long enough that moves would fall into it.
    const auto pause = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
    OK(cuLaunchHostFunc, stream, pause, nullptr);
    const CUdeviceptr to = out.at();
    const std::uint32_t zero = 0;
    const auto words = static_cast<std::uint32_t>(kBuffer / 4);
    within("libnccl.so.2",
           [&] { EXPECT(launch("add_through", words, stream, to, map, zero, words) == CUDA_SUCCESS); });
    crowd.press();
    crowd.press();
    OK(cuStreamSynchronize, stream);
    EXPECT(out.holds(1));
}

namespace {

// A kernel whose arguments show all that it uses: of any other caller others' memory would move beside it.
struct Beside {
    void launch_within(const char* library) const {
        within(library, [&] { launch(); });
    }
    void launch() const {
        EXPECT(rig::launch("add", kWords, stream, out.at(), in.at(), 0u, kWords) == CUDA_SUCCESS);
    }
    void nothing_moves(Crowd& crowd, const Action& submit) const {
        for (const Buffer* const each : {&beside, &in, &out}) crowd.bring_in(*each);
        Gate gate;
        gate.hold_up(stream);
        submit();
        std::thread other([&] {
            OK(cuCtxSetCurrent, gpu.context);
            crowd.press();
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        EXPECT(on_device(beside.at(), kBuffer));
        gate.open();
        other.join();
        OK(cuStreamSynchronize, stream);
        EXPECT(out.holds(2));
    }

    const Gpu gpu;
    const Buffer beside{kBuffer, 1}, in{kBuffer, 2}, out{kBuffer, 3};
    CUstream stream = nullptr;
};

}  // namespace

FAMILY_TEST("exempt: nothing moves beside launches of such a library, the first and later ones") {
    Beside work;
    Crowd crowd;
    crowd.press();
    OK(cuStreamCreate, &work.stream, CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 2; ++round)
        work.nothing_moves(crowd, [&] { work.launch_within("libnccl.so.2"); });
}

// It does not tell who captured its kernels.
FAMILY_TEST("exempt: nothing moves beside a graph that such a library captured a launch into") {
    Beside work;
    OK(cuStreamCreate, &work.stream, CU_STREAM_NON_BLOCKING);
    work.launch();  // the module is there before the capture
    OK(cuStreamBeginCapture_v2, work.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    work.launch_within("libnccl.so.2");
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, work.stream, &graph);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    Crowd crowd;
    crowd.press();
    work.nothing_moves(crowd, [&] { OK(cuGraphLaunch, exec, work.stream); });
}

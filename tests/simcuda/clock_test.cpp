// Simulated time: what calls and work take is what they are modelled to take. Streams here do not block, so
// that nothing is in order but what says so.
#include <cstring>

#include "tests/simcuda/kernels.h"
#include "tests/simcuda/vmm.h"

namespace {

using namespace sim;

constexpr std::size_t kMebi = 1 << 20;
constexpr double kCopyMs = 8.388608;  // 8 MiB at 1 GB/s

// Two streams, memory on both sides, and events to measure by.
struct Rig {
    Rig() {
        for (CUstream& stream : streams) OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        OK(cuMemAlloc, &device, 16 * kMebi);
        OK(cuMemHostAlloc, &host, 16 * kMebi, 0);
    }

    void up(CUstream stream) { OK(cuMemcpyHtoDAsync, device, host, 8 * kMebi, stream); }
    void down(CUstream stream) {
        OK(cuMemcpyDtoHAsync, static_cast<char*>(host) + 8 * kMebi, device + 8 * kMebi, 8 * kMebi, stream);
    }
    void kernel(CUstream stream) { LAUNCH(kernels["store"], 1, 1, stream, device, 1u); }

    static CUevent record(CUstream stream) {
        CUevent event = nullptr;
        OK(cuEventCreate, &event, 0);
        OK(cuEventRecord, event, stream);
        return event;
    }
    static double between(CUevent from, CUevent to) {
        float ms = -1;
        OK(cuEventSynchronize, from);
        OK(cuEventSynchronize, to);
        OK(cuEventElapsedTime, &ms, from, to);
        return ms;
    }

    Gpu gpu;
    Kernels kernels;
    CUstream streams[3] = {};
    CUdeviceptr device = 0;
    void* host = nullptr;
};

// Within a hundred calls' time.
bool about(double ms, double wanted) {
    return ms > wanted - 0.01 && ms < wanted + 0.2;
}

const Environment kSlow{{"SIMCUDA_CLOCK", "simulated"},
                        {"SIMCUDA_H2D_GBPS", "1"},
                        {"SIMCUDA_D2H_GBPS", "1"},
                        {"SIMCUDA_KERNEL_US", "5000"}};

#define CLOCK_TEST(name, environment) CLOCK_TEST_(name, environment, SIM_NAME(clock_body_, __LINE__))
#define CLOCK_TEST_(name, environment, body)        \
    static void body();                             \
    TEST_CASE(name) {                               \
        CHECK(::sim::run(environment, body) == ""); \
    }                                               \
    static void body()

CLOCK_TEST("clock: a copy takes its bytes at the link's speed, a kernel what it is said to", kSlow) {
    Rig rig;
    const CUevent begin = Rig::record(rig.streams[0]);
    rig.up(rig.streams[0]);
    const CUevent copied = Rig::record(rig.streams[0]);
    for (int i = 0; i < 3; ++i) rig.kernel(rig.streams[0]);
    const CUevent end = Rig::record(rig.streams[0]);
    EXPECT(about(Rig::between(begin, copied), kCopyMs));
    EXPECT(Rig::between(copied, end) == 15);
}

CLOCK_TEST("clock: each direction of the link is one; kernels and the other direction go on beside it",
           kSlow) {
    Rig rig;
    const CUevent begin = Rig::record(rig.streams[0]);
    rig.up(rig.streams[0]);
    const CUevent first = Rig::record(rig.streams[0]);
    rig.up(rig.streams[1]);
    const CUevent second = Rig::record(rig.streams[1]);
    rig.down(rig.streams[2]);
    rig.kernel(rig.streams[2]);
    const CUevent other = Rig::record(rig.streams[2]);
    EXPECT(about(Rig::between(begin, first), kCopyMs));
    EXPECT(about(Rig::between(begin, second), 2 * kCopyMs));
    EXPECT(about(Rig::between(begin, other), kCopyMs + 5));
}

CLOCK_TEST("clock: what is ready goes before what was submitted earlier and is not, and in between", kSlow) {
    Rig rig;
    const CUevent begin = Rig::record(rig.streams[0]);
    rig.kernel(rig.streams[0]);
    rig.up(rig.streams[0]);  // from 5 ms on
    const CUevent late = Rig::record(rig.streams[0]);
    rig.up(rig.streams[1]);  // 5 ms of it before, the rest behind
    const CUevent early = Rig::record(rig.streams[1]);
    EXPECT(about(Rig::between(begin, late), 5 + kCopyMs));
    EXPECT(about(Rig::between(begin, early), 2 * kCopyMs));
}

CLOCK_TEST("clock: who waits is there when the work has ended, and a stream of its own begins there", kSlow) {
    Rig rig;
    const CUevent begin = Rig::record(rig.streams[0]);
    rig.kernel(rig.streams[0]);
    OK(cuStreamSynchronize, rig.streams[0]);
    rig.kernel(rig.streams[1]);
    EXPECT(about(Rig::between(begin, Rig::record(rig.streams[1])), 10));
}

CLOCK_TEST("clock: a question comes before the end, until it has been asked often enough", kSlow) {
    Rig rig;
    OK(cuCtxSynchronize);
    const CUevent begin = Rig::record(rig.streams[0]);
    rig.kernel(rig.streams[0]);
    const CUevent end = Rig::record(rig.streams[0]);
    int asked = 1;
    for (; CU(cuEventQuery)(end) == CUDA_ERROR_NOT_READY && asked < 100; ++asked) {
    }
    EXPECT(asked > 5);
    EXPECT(asked < 30);
    // Not past it.
    rig.kernel(rig.streams[1]);
    EXPECT(about(Rig::between(begin, Rig::record(rig.streams[1])), 10));
    // Among other calls a question costs no more than they do.
    rig.kernel(rig.streams[0]);
    const CUevent later = Rig::record(rig.streams[0]);
    for (int i = 0; i < 100; ++i) {
        FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, later);
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, rig.streams[0]);
        OK(cuStreamWaitEvent, rig.streams[2], begin, 0);
    }
    float ms = 0;
    FAILS(CUDA_ERROR_NOT_READY, cuEventElapsedTime, &ms, begin, later);
}

CLOCK_TEST("clock: who sees that something has ended is not beyond what ends next", kSlow) {
    Rig rig;
    OK(cuCtxSynchronize);
    const CUevent begin = Rig::record(rig.streams[0]);
    rig.kernel(rig.streams[0]);
    const CUevent first = Rig::record(rig.streams[0]);
    rig.up(rig.streams[1]);
    const CUevent second = Rig::record(rig.streams[1]);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, second);
    while (CU(cuEventQuery)(first) == CUDA_ERROR_NOT_READY) {
    }
    for (int i = 0; i < 3; ++i) FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, second);
    EXPECT(about(Rig::between(begin, Rig::record(rig.streams[2])), 5));
}

CLOCK_TEST("clock: work that waits for the program holds up none that was submitted later", kSlow) {
    Rig rig;
    void* word = nullptr;
    OK(cuMemHostAlloc, &word, 4, 0);
    *static_cast<std::uint32_t*>(word) = 0;
    const CUevent begin = Rig::record(rig.streams[1]);
    OK(cuStreamWaitValue32, rig.streams[0], reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_EQ);
    rig.kernel(rig.streams[0]);
    rig.kernel(rig.streams[1]);
    const CUevent end = Rig::record(rig.streams[1]);
    EXPECT(about(Rig::between(begin, end), 5));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, rig.streams[0]);
    __atomic_store_n(static_cast<std::uint32_t*>(word), 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize, rig.streams[0]);
}

CLOCK_TEST("clock: time does not pass for who asks about what waits for the program itself", kSlow) {
    Rig rig;
    void* word = nullptr;
    OK(cuMemHostAlloc, &word, 4, 0);
    *static_cast<std::uint32_t*>(word) = 0;
    const CUevent begin = Rig::record(rig.streams[0]);
    OK(cuStreamWaitValue32, rig.streams[0], reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_EQ);
    const CUevent end = Rig::record(rig.streams[0]);
    for (int i = 0; i < 50; ++i) FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, rig.streams[0]);
    __atomic_store_n(static_cast<std::uint32_t*>(word), 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize, rig.streams[0]);
    EXPECT(about(Rig::between(begin, end), 0));
    rig.kernel(rig.streams[0]);
    EXPECT(about(Rig::between(end, Rig::record(rig.streams[0])), 5));
}

// A kernel that waits for the host looks like a long one.
CLOCK_TEST("clock: a kernel that waits for the program holds up others no longer than for a while", kSlow) {
    Rig rig;
    void* word = nullptr;
    OK(cuMemHostAlloc, &word, 8, 0);
    std::memset(word, 0, 8);
    const auto flag = reinterpret_cast<CUdeviceptr>(word);
    LAUNCH(rig.kernels["await"], 1, 1, rig.streams[0], flag, flag + 4);
    rig.up(rig.streams[1]);
    OK(cuStreamSynchronize, rig.streams[1]);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, rig.streams[0]);
    __atomic_store_n(static_cast<std::uint32_t*>(word), 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize, rig.streams[0]);
}

// A graph with a branch of kernels one behind another and a copy beside them; and one that loops.
CLOCK_TEST("clock: the work of graphs is in the order of their edges, also what they choose to do", kSlow) {
    Rig rig;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUstream main = rig.streams[0], side = rig.streams[1];
    OK(cuStreamBeginCapture, main, CU_STREAM_CAPTURE_MODE_RELAXED);
    const CUevent fork = Rig::record(main);
    OK(cuStreamWaitEvent, side, fork, 0);
    rig.up(side);
    for (int i = 0; i < 2; ++i) rig.kernel(main);
    OK(cuStreamWaitEvent, main, Rig::record(side), 0);
    rig.kernel(main);
    OK(cuStreamEndCapture, main, &graph);
    OK(cuGraphInstantiate, &exec, graph, 0);
    const CUevent begin = Rig::record(main);
    OK(cuGraphLaunch, exec, main);
    EXPECT(about(Rig::between(begin, Rig::record(main)), 15));

    CUgraph chooses = nullptr;
    OK(cuGraphCreate, &chooses, 0);
    CUgraphConditionalHandle handle = 0;
    OK(cuGraphConditionalHandleCreate, &handle, chooses, rig.gpu.context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNodeParams parameters{};
    parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    parameters.conditional = {handle, CU_GRAPH_COND_TYPE_IF, 1, nullptr, rig.gpu.context};
    CUgraphNode node = nullptr;
    OK(cuGraphAddNode, &node, chooses, nullptr, nullptr, 0, &parameters);
    std::uint32_t value = 1;
    void* arguments[] = {&rig.device, &value};
    CUDA_KERNEL_NODE_PARAMS kernel{};
    kernel.func = rig.kernels["store"];
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = arguments;
    CUgraphNode first = nullptr, second = nullptr;
    OK(cuGraphAddKernelNode, &first, parameters.conditional.phGraph_out[0], nullptr, 0, &kernel);
    OK(cuGraphAddKernelNode, &second, parameters.conditional.phGraph_out[0], &first, 1, &kernel);
    OK(cuGraphInstantiate, &exec, chooses, 0);
    const CUevent again = Rig::record(main);
    OK(cuGraphLaunch, exec, main);
    EXPECT(about(Rig::between(again, Rig::record(main)), 10));
}

SIM_TEST("clock: host memory takes its time to be page-locked",
         {{"SIMCUDA_CLOCK", "simulated"}, {"SIMCUDA_PIN_GBPS", "1"}, {"SIMCUDA_VMM_US", "1000"}}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    std::vector<std::uint8_t> pages(9 * kMebi);
    const auto takes = [&](double wanted, const auto& body) {
        const CUevent begin = Rig::record(stream);
        body();
        EXPECT(about(Rig::between(begin, Rig::record(stream)), wanted));
    };
    void* host = nullptr;
    takes(kCopyMs, [&] { OK(cuMemHostAlloc, &host, 8 * kMebi, 0); });
    takes(kCopyMs, [&] { OK(cuMemHostRegister, pages.data(), 8 * kMebi, 0); });
    takes(kCopyMs + 1, [&] { create(8 * kMebi, on_host()); });
    takes(1, [&] { create(8 * kMebi); });
    takes(0, [&] { OK(cuMemHostUnregister, pages.data()); });
}

// out[i] = in[i] + 1, word by word; its time is the link's alone where no GPU is modelled.
double increments(Rig& rig, CUdeviceptr out, CUdeviceptr in, std::uint32_t words) {
    const CUevent begin = Rig::record(rig.streams[0]);
    LAUNCH(rig.kernels["increment"], words / 256, 256, rig.streams[0], out, in, words);
    return Rig::between(begin, Rig::record(rig.streams[0]));
}

const Environment kLink{{"SIMCUDA_CLOCK", "simulated"}, {"SIMCUDA_H2D_GBPS", "1"}, {"SIMCUDA_D2H_GBPS", "2"}};

CLOCK_TEST("clock: what a kernel touches of the host's memory goes over the link", kLink) {
    Rig rig;
    constexpr std::uint32_t kWords = 2 * kMebi;
    const auto pinned = reinterpret_cast<CUdeviceptr>(rig.host);
    const CUdeviceptr mapped = reserve(8 * kMebi);
    map(mapped, 8 * kMebi, create(8 * kMebi, on_host()));
    EXPECT(about(increments(rig, rig.device, rig.device + 8 * kMebi, kWords), 0));
    EXPECT(about(increments(rig, rig.device, pinned, kWords), kCopyMs));
    EXPECT(about(increments(rig, rig.device, mapped, kWords), kCopyMs));
    EXPECT(about(increments(rig, pinned, rig.device, kWords), kCopyMs / 2));
    EXPECT(about(increments(rig, mapped, pinned, kWords), kCopyMs));  // both ways at once
    EXPECT(about(increments(rig, rig.device, pinned, kWords / 2), kCopyMs / 2));
    // It shares the link with copies.
    rig.up(rig.streams[1]);
    EXPECT(about(increments(rig, rig.device, pinned, kWords), 2 * kCopyMs));
}

constexpr const char* kCounting = R"(
.version 7.0
.target sm_75
.address_size 64
// A million rounds of three instructions.
.visible .entry rounds()
{
    .reg .pred %p;
    .reg .b32 %r;
    mov.u32 %r, 0;
AGAIN:
    add.u32 %r, %r, 1;
    setp.lt.u32 %p, %r, 1000000;
    @%p bra AGAIN;
    ret;
}
)";

double modelled(std::uint32_t words) {
    Rig rig;
    CUdeviceptr large = 0;
    OK(cuMemAlloc, &large, 8 * std::size_t{words});
    return increments(rig, large, large + 4 * std::size_t{words}, words);
}

// Within some calls' time.
bool close_to(double ms, double wanted) {
    return ms > wanted - 0.01 && ms < wanted + 0.01;
}

// 8 bytes a word: 900e9, 3350e9 a second.
SIM_TEST("clock: a kernel takes its bytes at the modelled GPU's speed: v100", {{"SIMCUDA_GPU", "v100"}}) {
    EXPECT(close_to(modelled(16 * kMebi), 8 * 16 * kMebi / 900e6));
    int multiprocessors = 0;
    OK(cuDeviceGetAttribute, &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    EXPECT(multiprocessors == 80);
}

SIM_TEST("clock: a kernel takes its bytes at the modelled GPU's speed: h100", {{"SIMCUDA_GPU", "h100"}}) {
    EXPECT(close_to(modelled(16 * kMebi), 8 * 16 * kMebi / 3350e6));
}

SIM_TEST("clock: a kernel takes its instructions at the modelled GPU's speed", {{"SIMCUDA_GPU", "a100"}}) {
    Rig rig;
    CUmodule module = nullptr;
    CUfunction rounds = nullptr;
    OK(cuModuleLoadData, &module, kCounting);
    OK(cuModuleGetFunction, &rounds, module, "rounds");
    const auto takes = [&](unsigned blocks, unsigned threads) {
        const CUevent begin = Rig::record(rig.streams[0]);
        OK(cuLaunchKernel, rounds, blocks, 1, 1, threads, 1, 1, 0, rig.streams[0], nullptr, nullptr);
        return Rig::between(begin, Rig::record(rig.streams[0]));
    };
    // 3,000,002 instructions of a thread, 19.5e12 / 2 a second; few threads take as long as 1,024 for each of
    // the 108 multiprocessors.
    const double full = 3'000'002.0 * 1024 * 108 / (19.5e9 / 2);
    EXPECT(close_to(takes(1, 1), full));
    EXPECT(close_to(takes(4, 32), full));
    // Few leave the GPU to others, all do not.
    const CUevent begin = Rig::record(rig.streams[0]);
    OK(cuLaunchKernel, rounds, 1, 1, 1, 32, 1, 1, 0, rig.streams[0], nullptr, nullptr);
    OK(cuLaunchKernel, rounds, 1, 1, 1, 32, 1, 1, 0, rig.streams[1], nullptr, nullptr);
    EXPECT(close_to(Rig::between(begin, Rig::record(rig.streams[0])), full));
    EXPECT(close_to(Rig::between(begin, Rig::record(rig.streams[1])), full));
}

}  // namespace

// Launches that may begin before the kernel before them has ended: while everything fits they do, as without
// the shim; what moves waits for both, and launches that something may move for begin behind the one before.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// primary: lets others go, waits for `flag`, and adds `value` to its word of `data`. look: what its word of
// `data` is goes into `seen`; the last block to have done so sets `flag`. wait_and_look: the same, but that
// it sets `flag` first and waits before it looks.
constexpr const char* kText = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry primary(.param .u64 flag, .param .u64 data, .param .u32 value)
{
    .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %a<4>;
    ld.param.u64 %a1, [flag]; ld.param.u64 %a2, [data]; ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r5, %r4, %r3, %r2;
    mul.wide.u32 %a3, %r5, 4; add.u64 %a2, %a2, %a3;
    griddepcontrol.launch_dependents;
AGAIN:
    ld.volatile.global.u32 %r6, [%a1]; setp.eq.u32 %p, %r6, 0; @%p bra AGAIN;
    ld.global.u32 %r7, [%a2]; add.u32 %r7, %r7, %r1; st.global.u32 [%a2], %r7;
    ret;
}
.visible .entry look(.param .u64 data, .param .u64 seen, .param .u64 flag, .param .u64 count)
{
    .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %a<6>;
    ld.param.u64 %a1, [data]; ld.param.u64 %a2, [seen]; ld.param.u64 %a4, [flag]; ld.param.u64 %a5, [count];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r5, %r4, %r3, %r2;
    mul.wide.u32 %a3, %r5, 4; add.u64 %a1, %a1, %a3; add.u64 %a2, %a2, %a3;
    ld.volatile.global.u32 %r6, [%a1]; st.global.u32 [%a2], %r6;
    bar.sync 0; membar.sys;
    setp.ne.u32 %p, %r2, 0; @%p bra DONE;
    atom.global.add.u32 %r7, [%a5], 1; add.u32 %r7, %r7, 1; mov.u32 %r8, %nctaid.x;
    setp.ne.u32 %p, %r7, %r8; @%p bra DONE;
    st.volatile.global.u32 [%a5], 0; membar.sys; st.volatile.global.u32 [%a4], 1;
DONE:
    ret;
}
.visible .entry wait_and_look(.param .u64 data, .param .u64 seen, .param .u64 flag, .param .u64 count)
{
    .reg .b32 %r<9>; .reg .b64 %a<6>;
    ld.param.u64 %a1, [data]; ld.param.u64 %a2, [seen]; ld.param.u64 %a4, [flag];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r5, %r4, %r3, %r2;
    mul.wide.u32 %a3, %r5, 4; add.u64 %a1, %a1, %a3; add.u64 %a2, %a2, %a3;
    st.volatile.global.u32 [%a4], 1;
    griddepcontrol.wait;
    ld.global.u32 %r6, [%a1]; st.global.u32 [%a2], %r6;
    ret;
}
)";

// Words in pinned host memory: kernels and the host tell one another by them.
struct Flags {
    Flags() {
        void* host = nullptr;
        OK(cuMemHostAlloc, &host, 2 * sizeof(unsigned), CU_MEMHOSTALLOC_DEVICEMAP);
        words = static_cast<unsigned*>(host);
        OK(cuMemHostGetDevicePointer_v2, &flag, host, 0);
        count = flag + sizeof(unsigned);
        words[0] = words[1] = 0;
    }
    void set() const { std::atomic_ref(*words).store(1); }
    void clear() const { std::atomic_ref(*words).store(0); }
    void await() const {
        while (std::atomic_ref(*words).load() == 0) std::this_thread::yield();
    }
    CUdeviceptr flag = 0, count = 0;
    unsigned* words = nullptr;
};

// Sets them when others have had time to do what they must not do before.
class Later {
  public:
    explicit Later(const Flags& flags)
        : thread_([&flags] {
              std::this_thread::sleep_for(std::chrono::milliseconds(200));
              flags.set();
          }) {}
    ~Later() { thread_.join(); }
    Later(const Later&) = delete;
    Later& operator=(const Later&) = delete;

  private:
    std::thread thread_;
};

class Pair {
  public:
    Pair() { OK(cuModuleLoadData, &module_, kText); }

    CUresult launch_primary(CUstream stream, const Flags& flags, const Buffer& data, unsigned value) const {
        CUdeviceptr flag = flags.flag, to = data.at();
        void* parameters[] = {&flag, &to, &value};
        return launch("primary", stream, false, parameters);
    }
    CUresult launch_secondary(const char* name, CUstream stream, const Flags& flags, const Buffer& data,
                              const Buffer& seen) const {
        CUdeviceptr from = data.at(), to = seen.at(), flag = flags.flag, count = flags.count;
        void* parameters[] = {&from, &to, &flag, &count};
        return launch(name, stream, true, parameters);
    }

  private:
    // Few blocks at a time are in flight where they wait for others: of the buffer a part is used.
    CUresult launch(const char* name, CUstream stream, bool may_begin_early, void** parameters) const {
        CUfunction function = nullptr;
        OK(cuModuleGetFunction, &function, module_, name);
        CUlaunchAttribute attribute{};
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        const CUlaunchConfig config{kBlocks, 1, 1, kThreads, 1, 1, 0, stream, &attribute, may_begin_early};
        return CU(cuLaunchKernelEx)(&config, function, parameters, nullptr);
    }

    CUmodule module_ = nullptr;

  public:
    static constexpr unsigned kBlocks = 8, kThreads = 64, kUsed = kBlocks * kThreads * 4;
};

// Its first bytes are those of pattern(`seed`) with `added`, the others are `rest`.
std::vector<std::uint8_t> with(unsigned added, std::uint32_t seed, std::vector<std::uint8_t> rest) {
    auto first = pattern(kBuffer, seed);
    first.resize(Pair::kUsed);
    first = plus(first, added);
    std::copy(first.begin(), first.end(), rest.begin());
    return rest;
}

const Environment kHopper = {{"SIMCUDA_ARCH", "90"}};

void run_at_each_level(const std::string& body) {
    for (const char* safety : {"opaque", "args", "strict"}) {
        CAPTURE(safety);
        Environment environment = kHopper;
        environment["LMS_SAFETY"] = safety;
        run_both(body, Driver::Simulated, environment);
    }
}

}  // namespace

BODY(dependent_launches_that_fit) {
    const Gpu gpu;
    const Pair pair;
    const Flags flags;
    const CUstream stream = new_stream();
    const Buffer data(kBuffer, 1), seen(kBuffer, 2);
    for (unsigned round = 0; round < 3; ++round) {
        flags.clear();
        // The first ends when the second has looked.
        EXPECT(pair.launch_primary(stream, flags, data, 5) == CUDA_SUCCESS);
        EXPECT(pair.launch_secondary("look", stream, flags, data, seen) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, stream);
        EXPECT(seen.read() == with(5 * round, 1, pattern(kBuffer, 2)));
        EXPECT(data.read() == with(5 * (round + 1), 1, pattern(kBuffer, 1)));
    }
    flags.clear();
    EXPECT(pair.launch_primary(stream, flags, data, 5) == CUDA_SUCCESS);
    EXPECT(pair.launch_secondary("wait_and_look", stream, flags, data, seen) == CUDA_SUCCESS);
    OK(cuStreamSynchronize, stream);
    EXPECT(seen.read() == with(20, 1, pattern(kBuffer, 2)));
}

TEST_CASE("dependent launches: where everything fits they overlap, as without the shim") {
    run_both("dependent_launches_that_fit", Driver::Simulated, kHopper);
}

BODY(memory_moves_beside_dependent_launches) {
    const Gpu gpu;
    const Pair pair;
    const Flags looked, go_on;
    const CUstream stream = new_stream();
    const Buffer data(kBuffer, 1), seen(kBuffer, 2);
    EXPECT(pair.launch_primary(stream, go_on, data, 5) == CUDA_SUCCESS);
    EXPECT(pair.launch_secondary("look", stream, looked, data, seen) == CUDA_SUCCESS);
    looked.await();  // the second has ended, or is about to, and the first has not
    Crowd crowd;
    // Where what waits for memory can be used in place it does not wait for ever.
    const char* const mapping = std::getenv("SIMCUDA_HOST_VMM");
    const bool mapped = mapping != nullptr && *mapping == '1';
    std::optional<Later> later;
    if (!mapped) later.emplace(go_on);
    crowd.press();
    crowd.press();
    if (mapped) {
        EXPECT(data.resident());
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
        go_on.set();
    }
    OK(cuStreamSynchronize, stream);
    crowd.evict(data);
    crowd.evict(seen);
    EXPECT(data.read() == with(5, 1, pattern(kBuffer, 1)));
    EXPECT(seen.read() == with(0, 1, pattern(kBuffer, 2)));
}

TEST_CASE(
    "dependent launches: what the first writes stays for as long as it runs, though the second has ended") {
    run_at_each_level("memory_moves_beside_dependent_launches");
}

BODY(dependent_launches_that_do_not_fit) {
    const Gpu gpu;
    const Pair pair;
    const Flags go_on, begun;
    const CUstream stream = new_stream();
    const Buffer data(kBuffer, 1), seen(kBuffer, 2), last(kBuffer, 3);
    Crowd crowd;
    for (unsigned round = 0; round < 3; ++round) {
        for (const Buffer* buffer : {&data, &seen, &last}) crowd.evict(*buffer);
        go_on.clear();
        begun.clear();
        EXPECT(pair.launch_primary(stream, go_on, data, 5) == CUDA_SUCCESS);
        EXPECT(on_device(data.at(), 1));  // the word that it writes
        const Later later(go_on);
        EXPECT(pair.launch_secondary("look", stream, begun, data, seen) == CUDA_SUCCESS);
        EXPECT(pair.launch_secondary("wait_and_look", stream, begun, seen, last) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, stream);
        EXPECT(seen.read() == with(5 * (round + 1), 1, pattern(kBuffer, 2)));  // in order
        EXPECT(last.read() == with(5 * (round + 1), 1, pattern(kBuffer, 3)));
        EXPECT(data.read() == with(5 * (round + 1), 1, pattern(kBuffer, 1)));
    }
}

TEST_CASE("dependent launches: where memory moves they come one after the other") {
    run_at_each_level("dependent_launches_that_do_not_fit");
}

BODY(dependent_launches_of_a_graph) {
    const Gpu gpu;
    const Pair pair;
    const Flags flags;
    const CUstream stream = new_stream();
    const Buffer data(kBuffer, 1), seen(kBuffer, 2);
    CUgraph graph = nullptr;
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT(pair.launch_primary(stream, flags, data, 5) == CUDA_SUCCESS);
    EXPECT(pair.launch_secondary("look", stream, flags, data, seen) == CUDA_SUCCESS);
    OK(cuStreamEndCapture, stream, &graph);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;
    for (unsigned round = 0; round < 3; ++round) {
        crowd.evict(data);
        crowd.evict(seen);
        flags.clear();
        OK(cuGraphLaunch, exec, stream);
        EXPECT(on_device(data.at(), 1));
        EXPECT(on_device(seen.at(), 1));
        OK(cuStreamSynchronize, stream);
        EXPECT(seen.read() == with(5 * round, 1, pattern(kBuffer, 2)));
        EXPECT(data.read() == with(5 * (round + 1), 1, pattern(kBuffer, 1)));
    }
    // A graph of this shape is known again node by node, whatever its edges carry.
    CUgraphExecUpdateResultInfo info{};
    OK(cuGraphExecUpdate_v2, exec, graph, &info);
    crowd.evict(data);
    flags.clear();
    launch_and_wait(exec, stream);
    EXPECT(data.read() == with(20, 1, pattern(kBuffer, 1)));
}

TEST_CASE("dependent launches: those of a graph overlap also where memory moves") {
    run_both("dependent_launches_of_a_graph", Driver::Simulated, kHopper);
}

// Launches that may begin before the kernel before them in their stream has ended (programmatic dependent
// launch). That they overlap is nobody's promise on a GPU; here they do, and what ends by that alone is how
// it is seen.
#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

// primary: lets others go, says so in `begun`, waits for `flag` and stores `value` in `data`; quiet: the same
// without letting go. look: what `data` is goes into `seen`, then `flag` is set. wait_and_look: sets `flag`
// and looks when it has waited. relay: lets others go, waits, and adds to `data`.
std::string waiting_kernel(const std::string& name, const std::string& begin) {
    return ".visible .entry " + name +
           "(.param .u64 begun, .param .u64 flag, .param .u64 data, .param .u32 value)\n{\n" + R"(
    .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %a<4>;
    ld.param.u64 %a1, [begun]; ld.param.u64 %a2, [flag]; ld.param.u64 %a3, [data]; ld.param.u32 %r1, [value];
)" + begin +
           R"(
    st.volatile.global.u32 [%a1], 1;
AGAIN:
    ld.volatile.global.u32 %r2, [%a2]; setp.eq.u32 %p, %r2, 0; @%p bra AGAIN;
    st.volatile.global.u32 [%a3], %r1;
    ret;
}
)";
}

const std::string kPrimaryText = ".version 8.0\n.target sm_90\n.address_size 64\n" +
                                 waiting_kernel("primary", "griddepcontrol.launch_dependents;") +
                                 waiting_kernel("quiet", "") + R"(
.visible .entry look(.param .u64 data, .param .u64 seen, .param .u64 flag)
{
    .reg .b32 %r; .reg .b64 %a<4>;
    ld.param.u64 %a1, [data]; ld.param.u64 %a2, [seen]; ld.param.u64 %a3, [flag];
    ld.volatile.global.u32 %r, [%a1]; st.volatile.global.u32 [%a2], %r; membar.sys;
    st.volatile.global.u32 [%a3], 1;
    ret;
}
.visible .entry wait_and_look(.param .u64 data, .param .u64 seen, .param .u64 flag)
{
    .reg .b32 %r; .reg .b64 %a<4>;
    ld.param.u64 %a1, [data]; ld.param.u64 %a2, [seen]; ld.param.u64 %a3, [flag];
    st.volatile.global.u32 [%a3], 1;
    griddepcontrol.wait;
    ld.global.u32 %r, [%a1]; st.global.u32 [%a2], %r;
    ret;
}
.visible .entry relay(.param .u64 data)
{
    .reg .b32 %r; .reg .b64 %a;
    ld.param.u64 %a, [data];
    griddepcontrol.launch_dependents;
    griddepcontrol.wait;
    ld.global.u32 %r, [%a]; add.u32 %r, %r, 1; st.global.u32 [%a], %r;
    ret;
}
)";

// Words that the host shares with kernels, zeros at first.
class Words {
  public:
    Words() {
        void* host = nullptr;
        OK(cuMemHostAlloc, &host, kWords * sizeof(unsigned), CU_MEMHOSTALLOC_DEVICEMAP);
        words_ = static_cast<unsigned*>(host);
        OK(cuMemHostGetDevicePointer, &device_, host, 0);
        clear();
    }
    void clear() {
        for (unsigned i = 0; i < kWords; ++i) at(i) = 0;
    }
    std::atomic_ref<unsigned> at(unsigned i) const { return std::atomic_ref(words_[i]); }
    CUdeviceptr operator[](unsigned i) const { return device_ + i * sizeof(unsigned); }
    void await(unsigned i) const {
        while (at(i) == 0) std::this_thread::yield();
    }

  private:
    static constexpr unsigned kWords = 16;
    unsigned* words_ = nullptr;
    CUdeviceptr device_ = 0;
};
enum : unsigned { kBegun, kFlag, kData, kSeen, kOther, kThird, kElsewhere };

enum class Leave { None, Refused, Given };

class LaunchRig {
  public:
    LaunchRig() {
        CUmodule module = nullptr;
        OK(cuModuleLoadData, &module, kPrimaryText.c_str());
        for (const char* name : {"primary", "quiet", "look", "wait_and_look", "relay"}) {
            functions_.emplace_back(name, nullptr);
            OK(cuModuleGetFunction, &functions_.back().second, module, name);
        }
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    }

    CUfunction function(const std::string& name) const {
        for (const auto& [known, function] : functions_)
            if (known == name) return function;
        return nullptr;
    }

    template <typename... Arguments>
    void launch_in(CUstream to, Leave leave, const char* name, const Arguments&... arguments) const {
        CUlaunchAttribute attribute{};
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = leave == Leave::Given;
        const CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, to, &attribute, leave != Leave::None};
        void* parameters[] = {const_cast<Arguments*>(&arguments)...};
        OK(cuLaunchKernelEx, &config, function(name), parameters, nullptr);
    }
    template <typename... Arguments>
    void launch(Leave leave, const char* name, const Arguments&... arguments) const {
        launch_in(stream, leave, name, arguments...);
    }
    // It waits for `flag` and stores 1.
    void launch_primary(const char* name, unsigned flag) const {
        launch(Leave::None, name, words[kBegun], words[flag], words[kData], 1u);
    }
    void launch_secondary(Leave leave, const char* name, unsigned seen = kSeen, unsigned flag = kFlag) const {
        launch(leave, name, words[kData], words[seen], words[flag]);
    }
    void finish() const { OK(cuStreamSynchronize, stream); }

    CUstream stream = nullptr;
    Words words;

  private:
    std::vector<std::pair<std::string, CUfunction>> functions_;
};

SIM_TEST("dependent launch: what does not wait sees what was there before", {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    LaunchRig rig;
    for (unsigned round = 0; round < 5; ++round) {
        rig.words.clear();
        rig.words.at(kSeen) = 7;
        rig.launch_primary("primary", kFlag);
        rig.launch_secondary(Leave::Given, "look");
        rig.finish();
        EXPECT(rig.words.at(kSeen) == 0);
        EXPECT(rig.words.at(kData) == 1);
    }
}

SIM_TEST("dependent launch: what waits sees all that was written", {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    LaunchRig rig;
    for (unsigned round = 0; round < 5; ++round) {
        rig.words.clear();
        rig.launch_primary("primary", kFlag);
        rig.launch_secondary(Leave::Given, "wait_and_look");
        rig.finish();
        EXPECT(rig.words.at(kSeen) == 1);
    }
}

// Each begins late by the same rule, whatever keeps it: the host lets the primary end long after it began.
void begins_when_the_primary_has_ended(const LaunchRig& rig, const char* primary, Leave leave,
                                       const std::function<void()>& between) {
    rig.launch_primary(primary, kFlag);
    between();
    rig.launch_secondary(leave, "look", kSeen, kOther);
    rig.words.await(kBegun);
    for (unsigned i = 0; i < 200; ++i) {
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, rig.stream);
        std::this_thread::yield();
    }
    EXPECT(rig.words.at(kOther) == 0);
    rig.words.at(kFlag) = 1;
    rig.finish();
    EXPECT(rig.words.at(kSeen) == 1);
}

SIM_TEST("dependent launch: nothing begins early without leave, or behind anything but a kernel that lets it",
         {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    LaunchRig rig;
    CUevent event = nullptr;
    OK(cuEventCreate, &event, 0);
    const auto nothing = [] {};
    const auto record = [&] { OK(cuEventRecord, event, rig.stream); };
    const auto set = [&] { OK(cuMemsetD32Async, rig.words[kElsewhere], 1, 1, rig.stream); };
    const auto check = [&](const char* primary, Leave leave, const std::function<void()>& between) {
        rig.words.clear();
        begins_when_the_primary_has_ended(rig, primary, leave, between);
    };
    check("primary", Leave::None, nothing);
    check("primary", Leave::Refused, nothing);
    check("quiet", Leave::Given, nothing);
    check("primary", Leave::Given, record);
    check("primary", Leave::Given, set);
}

SIM_TEST("dependent launch: GPUs before compute capability 9.0 give no leave", {{"SIMCUDA_ARCH", "89"}}) {
    const Gpu gpu;
    const LaunchRig rig;
    begins_when_the_primary_has_ended(rig, "primary", Leave::Given, [] {});
}

SIM_TEST("dependent launch: what comes behind it comes behind what it overlapped", {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    const LaunchRig rig;
    CUstream other = nullptr;
    CUevent event = nullptr;
    OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    CUdeviceptr data = 0;
    OK(cuMemAllocAsync, &data, 4, rig.stream);
    rig.launch(Leave::None, "primary", rig.words[kBegun], rig.words[kFlag], data, 1u);
    rig.launch_secondary(Leave::Given, "look", kSeen, kOther);
    OK(cuEventRecord, event, rig.stream);
    OK(cuStreamWaitEvent, other, event, 0);
    rig.launch_in(other, Leave::None, "look", data, rig.words[kElsewhere], rig.words[kThird]);
    OK(cuEventRecord, event, other);
    OK(cuStreamWaitEvent, rig.stream, event, 0);
    OK(cuMemFreeAsync, data, rig.stream);
    rig.words.await(kOther);  // the secondary has ended, or is about to
    for (unsigned i = 0; i < 200; ++i) {
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, rig.stream);
        FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, event);
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, other);
        std::this_thread::yield();
    }
    EXPECT(rig.words.at(kThird) == 0);
    rig.words.at(kFlag) = 1;
    rig.finish();
    EXPECT(rig.words.at(kElsewhere) == 1);
    OK(cuCtxSynchronize);
}

SIM_TEST("dependent launch: the third of a row waits for the first, though the second did not",
         {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    const LaunchRig rig;
    rig.launch_primary("primary", kFlag);
    rig.launch_secondary(Leave::Given, "look", kSeen, kOther);
    rig.launch_secondary(Leave::Given, "wait_and_look", kElsewhere, kThird);
    rig.words.await(kThird);
    EXPECT(rig.words.at(kSeen) == 0);
    EXPECT(rig.words.at(kElsewhere) == 0);
    rig.words.at(kFlag) = 1;
    rig.finish();
    EXPECT(rig.words.at(kElsewhere) == 1);
}

SIM_TEST("dependent launch: many that wait leave room for a kernel that they wait for",
         {{"SIMCUDA_ARCH", "90"}, {"SIMCUDA_KERNELS", "4"}}) {
    const Gpu gpu;
    const LaunchRig rig;
    CUstream other = nullptr;
    OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    constexpr unsigned kMany = 40;
    rig.launch_primary("primary", kFlag);
    for (unsigned i = 0; i < kMany; ++i) rig.launch(Leave::Given, "relay", rig.words[kData]);
    rig.words.await(kBegun);
    rig.launch_in(other, Leave::None, "look", rig.words[kData], rig.words[kSeen], rig.words[kFlag]);
    rig.finish();
    EXPECT(rig.words.at(kSeen) == 0);
    EXPECT(rig.words.at(kData) == 1 + kMany);
}

SIM_TEST("dependent launch: a fault of the one before it ends what waits for that",
         {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    const LaunchRig rig;
    rig.launch(Leave::None, "primary", rig.words[kBegun], rig.words[kFlag], CUdeviceptr{4}, 1u);
    rig.launch_secondary(Leave::Given, "wait_and_look");
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize, rig.stream);
}

bool is_programmatic(const CUgraphEdgeData& edge) {
    return edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && edge.to_port == 0 &&
           edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
}

void run_twice(LaunchRig& rig, CUgraph graph) {
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate, &exec, graph, 0);
    for (unsigned round = 0; round < 2; ++round) {
        rig.words.clear();
        rig.words.at(kSeen) = 7;
        OK(cuGraphLaunch, exec, rig.stream);
        rig.finish();
        EXPECT(rig.words.at(kSeen) == 0);
        EXPECT(rig.words.at(kData) == 1);
        EXPECT(rig.words.at(kElsewhere) == 1);
    }
}

SIM_TEST("dependent launch: captured, they overlap, and the graph says so", {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    LaunchRig rig;
    CUgraph graph = nullptr;
    OK(cuStreamBeginCapture, rig.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemsetD32Async, rig.words[kThird], 0, 1, rig.stream);
    rig.launch(Leave::Given, "primary", rig.words[kBegun], rig.words[kFlag], rig.words[kData], 1u);
    rig.launch_secondary(Leave::Given, "look");
    rig.launch_secondary(Leave::None, "look", kElsewhere, kOther);
    OK(cuStreamEndCapture, rig.stream, &graph);
    std::array<CUgraphNode, 3> from{}, to{};
    std::array<CUgraphEdgeData, 3> edges{};
    std::size_t count = 3;
    FAILS(CUDA_ERROR_LOSSY_QUERY, cuGraphGetEdges, graph, from.data(), to.data(), nullptr, &count);
    count = 3;
    OK(cuGraphGetEdges, graph, from.data(), to.data(), edges.data(), &count);
    EXPECT(count == 3);
    unsigned programmatic = 0;
    for (const CUgraphEdgeData& edge : edges) programmatic += is_programmatic(edge);
    EXPECT(programmatic == 1);
    run_twice(rig, graph);
}

CUgraphNode add_kernel(const LaunchRig& rig, CUgraph graph, const char* name, void** parameters) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = rig.function(name);
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters;
    CUgraphNode node = nullptr;
    OK(cuGraphAddKernelNode, &node, graph, nullptr, 0, &params);
    return node;
}

SIM_TEST("dependent launch: edges of graphs let kernels overlap, and no other nodes",
         {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    LaunchRig rig;
    CUgraph graph = nullptr;
    OK(cuGraphCreate, &graph, 0);
    CUdeviceptr begun = rig.words[kBegun], flag = rig.words[kFlag], data = rig.words[kData],
                seen = rig.words[kSeen], other = rig.words[kOther], elsewhere = rig.words[kElsewhere];
    unsigned value = 1;
    void* of_primary[] = {&begun, &flag, &data, &value};
    void* of_look[] = {&data, &seen, &flag};
    void* of_last[] = {&data, &elsewhere, &other};
    const CUgraphNode primary = add_kernel(rig, graph, "primary", of_primary),
                      look = add_kernel(rig, graph, "look", of_look),
                      last = add_kernel(rig, graph, "look", of_last);
    CUgraphNode empty = nullptr;
    OK(cuGraphAddEmptyNode, &empty, graph, nullptr, 0);
    constexpr unsigned char kPlain = CU_GRAPH_DEPENDENCY_TYPE_DEFAULT,
                            kProgrammatic = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC,
                            kEnd = CU_GRAPH_KERNEL_NODE_PORT_DEFAULT,
                            kLetGo = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                            kBegin = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
    const auto add = [&](CUgraphNode from, CUgraphNode to, unsigned char port, unsigned char type,
                         unsigned char to_port = 0) {
        CUgraphEdgeData edge{};
        edge.from_port = port;
        edge.to_port = to_port;
        edge.type = type;
        return CU(cuGraphAddDependencies)(graph, &from, &to, &edge, 1);
    };
    EXPECT(add(primary, look, kLetGo, kPlain) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(add(primary, look, kEnd, kProgrammatic) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(add(primary, look, 3, kProgrammatic) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(add(primary, look, kLetGo, 2) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(add(primary, look, kLetGo, kProgrammatic, 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(add(primary, empty, kLetGo, kProgrammatic) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(add(empty, primary, kLetGo, kProgrammatic) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(add(primary, look, kLetGo, kProgrammatic) == CUDA_SUCCESS);
    EXPECT(add(primary, last, kBegin, kProgrammatic) == CUDA_SUCCESS);  // kept to the end
    EXPECT(add(look, last, kEnd, kPlain) == CUDA_SUCCESS);
    run_twice(rig, graph);
}

SIM_TEST("dependent launch: in simulated time each takes its time behind the other",
         {{"SIMCUDA_ARCH", "90"}, {"SIMCUDA_CLOCK", "simulated"}, {"SIMCUDA_KERNEL_US", "100"}}) {
    const Gpu gpu;
    const LaunchRig rig;
    CUevent begin = nullptr, end = nullptr;
    OK(cuEventCreate, &begin, 0);
    OK(cuEventCreate, &end, 0);
    OK(cuEventRecord, begin, rig.stream);
    rig.launch_primary("primary", kFlag);
    rig.launch_secondary(Leave::Given, "look");
    rig.launch_secondary(Leave::Given, "wait_and_look", kElsewhere, kOther);
    OK(cuEventRecord, end, rig.stream);
    OK(cuEventSynchronize, end);
    float ms = 0;
    OK(cuEventElapsedTime, &ms, begin, end);
    EXPECT(ms > 0.299f && ms < 0.311f);
    EXPECT(rig.words.at(kSeen) == 0);
    EXPECT(rig.words.at(kElsewhere) == 1);
}

SIM_TEST("dependent launch: a driver that lets launches overtake keeps those that wait in order",
         {{"SIMCUDA_ARCH", "90"}, {"SIMCUDA_PERVERSE", "launches-overlap"}}) {
    const Gpu gpu;
    LaunchRig rig;
    for (unsigned round = 0; round < 20; ++round) {
        rig.words.clear();
        rig.launch_primary("primary", kFlag);
        OK(cuMemsetD32Async, rig.words[kData], 5, 1, rig.stream);
        rig.launch_secondary(Leave::Given, "wait_and_look", kSeen, kOther);
        rig.words.at(kFlag) = 1;
        rig.finish();
        EXPECT(rig.words.at(kSeen) == 5);
    }
}

}  // namespace

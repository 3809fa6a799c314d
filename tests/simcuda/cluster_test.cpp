// Launches with clusters: what a kernel and a device allow, and what is told of them.
#include <algorithm>
#include <vector>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

// Each block stores the clusters' shape, 0 where nobody asked for one.
std::string shape_kernel(const char* name, const char* directives) {
    return std::string(".visible .entry ") + name + "(.param .u64 out) " + directives + R"(
{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %a<3>;
    ld.param.u64 %a1, [out];
    mov.u32 %r1, %ctaid.x; mul.wide.u32 %a2, %r1, 16; add.u64 %a1, %a1, %a2;
    mov.u32 %r2, %cluster_nctaid.x; mov.u32 %r3, %cluster_nctaid.y; mov.u32 %r4, %cluster_nctaid.z;
    mov.pred %p, %is_explicit_cluster; selp.u32 %r5, 1, 0, %p;
    st.global.v4.u32 [%a1], {%r2, %r3, %r4, %r5};
    ret;
}
)";
}

const std::string kText =
    ".version 8.0\n.target sm_90\n.address_size 64\n" + shape_kernel("any", "") +
    shape_kernel("four", ".explicitcluster .reqnctapercluster 4, 1, 1") +
    shape_kernel("told", ".explicitcluster") + shape_kernel("few", ".maxclusterrank 2") +
    ".visible .entry large(.param .u64 out)\n{ .shared .align 4 .b8 room[40000]; .reg .b32 %r; "
    "ld.shared.u32 %r, [room]; ret; }\n";

CUfunction kernel(const char* name) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    OK(cuModuleLoadData, &module, kText.c_str());
    OK(cuModuleGetFunction, &function, module, name);
    return function;
}

CUlaunchAttribute cluster(unsigned x, unsigned y = 1, unsigned z = 1) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {x, y, z};
    return attribute;
}

CUlaunchConfig config(unsigned blocks, unsigned threads, CUlaunchAttribute* attribute) {
    return {blocks, 1, 1, threads, 1, 1, 0, nullptr, attribute, attribute != nullptr};
}

struct Seen {
    unsigned x, y, z, asked_for;
    bool operator==(const Seen&) const = default;
};

struct Room {
    Room() { OK(cuMemAlloc, &out, 64 * sizeof(Seen)); }
    CUdeviceptr out = 0;

    CUresult launch(CUfunction function, unsigned blocks, CUlaunchAttribute* attribute) const {
        CUdeviceptr at = out;
        void* parameters[] = {&at};
        const CUlaunchConfig one = config(blocks, 32, attribute);
        return CU(cuLaunchKernelEx)(&one, function, parameters, nullptr);
    }
    bool shows(unsigned blocks, Seen expected) const {
        std::vector<Seen> seen(blocks);
        OK(cuMemcpyDtoH, seen.data(), out, blocks * sizeof(Seen));
        return std::all_of(seen.begin(), seen.end(), [&](const Seen& one) { return one == expected; });
    }
};

SIM_TEST("cluster: a launch has what it asks for, or what the kernel says", {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    const Room room;
    int present = 0;
    OK(cuDeviceGetAttribute, &present, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0);
    EXPECT(present == 1);
    const CUfunction any = kernel("any"), four = kernel("four"), told = kernel("told"), few = kernel("few");
    CUlaunchAttribute one = cluster(1), two = cluster(2), three = cluster(3), fours = cluster(4),
                      eight = cluster(8), sixteen = cluster(16), none = cluster(0), flat = cluster(2, 2);
    EXPECT(room.launch(any, 12, nullptr) == CUDA_SUCCESS);
    EXPECT(room.shows(12, {1, 1, 1, 0}));
    EXPECT(room.launch(any, 12, &three) == CUDA_SUCCESS);
    EXPECT(room.shows(12, {3, 1, 1, 1}));
    EXPECT(room.launch(any, 12, &one) == CUDA_SUCCESS);
    EXPECT(room.shows(12, {1, 1, 1, 1}));
    EXPECT(room.launch(any, 16, &eight) == CUDA_SUCCESS);
    EXPECT(room.shows(16, {8, 1, 1, 1}));
    for (CUlaunchAttribute* wrong : {&eight, &sixteen, &none, &flat})  // 12 blocks in a row
        EXPECT(room.launch(any, 12, wrong) == CUDA_ERROR_INVALID_CLUSTER_SIZE);

    LAUNCH(four, 12, 32, nullptr, room.out);
    EXPECT(room.shows(12, {4, 1, 1, 1}));
    EXPECT(room.launch(four, 12, &fours) == CUDA_SUCCESS);
    EXPECT(room.launch(four, 12, &two) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
    EXPECT(room.launch(four, 10, nullptr) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
    EXPECT(room.launch(told, 12, nullptr) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
    EXPECT(room.launch(told, 12, &two) == CUDA_SUCCESS);
    EXPECT(room.launch(few, 12, &two) == CUDA_SUCCESS);
    EXPECT(room.launch(few, 12, &three) == CUDA_ERROR_INVALID_CLUSTER_SIZE);

    // More than eight blocks only where the kernel allows what not every device has.
    EXPECT(room.launch(any, 16, &sixteen) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
    OK(cuFuncSetAttribute, any, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    EXPECT(room.launch(any, 16, &sixteen) == CUDA_SUCCESS);
    EXPECT(room.shows(16, {16, 1, 1, 1}));
}

SIM_TEST("cluster: a function's attributes", {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    const Room room;
    const CUfunction any = kernel("any"), four = kernel("four"), told = kernel("told");
    const auto get = [](CUfunction function, CUfunction_attribute which) {
        int value = -1;
        OK(cuFuncGetAttribute, &value, which, function);
        return value;
    };
    EXPECT(get(any, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) == 0);
    EXPECT(get(told, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) == 1);
    EXPECT(get(any, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) == 0);
    EXPECT(get(four, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) == 4);
    EXPECT(get(four, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT) == 1);
    EXPECT(get(any, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) == 0);
    FAILS(CUDA_ERROR_NOT_PERMITTED, cuFuncSetAttribute, four, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute, told, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute, any,
          CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute, any,
          CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 3);
    OK(cuFuncSetAttribute, any, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
       CU_CLUSTER_SCHEDULING_POLICY_SPREAD);
    EXPECT(get(any, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE) ==
           CU_CLUSTER_SCHEDULING_POLICY_SPREAD);
    // All three or none.
    OK(cuFuncSetAttribute, any, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2);
    EXPECT(room.launch(any, 12, nullptr) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
    OK(cuFuncSetAttribute, any, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1);
    OK(cuFuncSetAttribute, any, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1);
    EXPECT(room.launch(any, 12, nullptr) == CUDA_SUCCESS);
    EXPECT(room.shows(12, {2, 1, 1, 1}));
}

SIM_TEST("cluster: how many fit at once, and how large one may be",
         {{"SIMCUDA_ARCH", "90"}, {"SIMCUDA_SMS", "20"}}) {
    const Gpu gpu;
    const CUfunction any = kernel("any"), four = kernel("four"), large = kernel("large");
    int count = 0;
    CUlaunchAttribute eight = cluster(8), two = cluster(2), fours = cluster(4);
    const auto active = [&](CUfunction function, const CUlaunchConfig& one) {
        return CU(cuOccupancyMaxActiveClusters)(&count, function, &one);
    };
    // Two blocks of 512 threads on each of 16 multiprocessors, and of 4 more.
    EXPECT(active(any, config(64, 512, &eight)) == CUDA_SUCCESS);
    EXPECT(count == 4 + 1);
    // Of 40,000 bytes of 64 KiB one.
    EXPECT(active(large, config(64, 32, &eight)) == CUDA_SUCCESS);
    EXPECT(count == 2);
    EXPECT(active(four, config(64, 1024, nullptr)) == CUDA_SUCCESS);
    EXPECT(count == 4 + 1);
    EXPECT(active(four, config(64, 1024, &fours)) == CUDA_SUCCESS);
    EXPECT(active(four, config(64, 1024, &two)) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
    EXPECT(active(any, config(64, 1024, nullptr)) == CUDA_ERROR_INVALID_CLUSTER_SIZE);

    const CUlaunchConfig plain = config(64, 1024, nullptr);
    OK(cuOccupancyMaxPotentialClusterSize, &count, any, &plain);
    EXPECT(count == 8);
    OK(cuOccupancyMaxPotentialClusterSize, &count, four, &plain);
    EXPECT(count == 4);
    OK(cuFuncSetAttribute, any, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    OK(cuOccupancyMaxPotentialClusterSize, &count, any, &plain);
    EXPECT(count == 16);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxPotentialClusterSize, nullptr, any, &plain);
}

SIM_TEST("cluster: one that does not fit on the device is refused",
         {{"SIMCUDA_ARCH", "90"}, {"SIMCUDA_SMS", "2"}}) {
    const Gpu gpu;
    const Room room;
    const CUfunction large = kernel("large");
    CUlaunchAttribute two = cluster(2), fours = cluster(4);
    EXPECT(room.launch(large, 8, &two) == CUDA_SUCCESS);
    EXPECT(room.launch(large, 8, &fours) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

SIM_TEST("cluster: captured, and set for a node", {{"SIMCUDA_ARCH", "90"}}) {
    const Gpu gpu;
    const Room room;
    const CUfunction any = kernel("any");
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUlaunchAttribute two = cluster(2);
    CUdeviceptr at = room.out;
    void* parameters[] = {&at};
    CUlaunchConfig one = config(12, 32, &two);
    one.hStream = stream;
    OK(cuLaunchKernelEx, &one, any, parameters, nullptr);
    OK(cuStreamEndCapture, stream, &graph);
    std::size_t nodes = 1;
    OK(cuGraphGetNodes, graph, &node, &nodes);
    CUlaunchAttributeValue value{};
    OK(cuGraphKernelNodeGetAttribute, node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value);
    EXPECT(value.clusterDim.x == 2 && value.clusterDim.y == 1 && value.clusterDim.z == 1);
    const auto run = [&] {
        OK(cuGraphInstantiate, &exec, graph, 0);
        OK(cuGraphLaunch, exec, stream);
        OK(cuStreamSynchronize, stream);
    };
    run();
    EXPECT(room.shows(12, {2, 1, 1, 1}));
    value.clusterDim = {4, 1, 1};
    OK(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value);
    run();
    EXPECT(room.shows(12, {4, 1, 1, 1}));
    value.clusterDim = {5, 1, 1};
    OK(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value);
    FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuGraphInstantiate, &exec, graph, 0);

    // A kernel that must be told is told by its node's attribute, when the graph is made executable.
    CUgraph other = nullptr;
    OK(cuGraphCreate, &other, 0);
    CUDA_KERNEL_NODE_PARAMS told{};
    told.func = kernel("told");
    told.gridDimX = 12, told.gridDimY = told.gridDimZ = 1;
    told.blockDimX = 32, told.blockDimY = told.blockDimZ = 1;
    told.kernelParams = parameters;
    OK(cuGraphAddKernelNode, &node, other, nullptr, 0, &told);
    FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuGraphInstantiate, &exec, other, 0);
    value.clusterDim = {3, 1, 1};
    OK(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value);
    OK(cuGraphInstantiate, &exec, other, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(room.shows(12, {3, 1, 1, 1}));
}

SIM_TEST("cluster: there are none before compute capability 9.0", {}) {
    const Gpu gpu;
    const Room room;
    int present = 1;
    OK(cuDeviceGetAttribute, &present, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0);
    EXPECT(present == 0);
    const CUfunction any = kernel("any");
    CUlaunchAttribute one = cluster(1), two = cluster(2);
    EXPECT(room.launch(any, 4, &one) == CUDA_SUCCESS);
    EXPECT(room.launch(any, 4, &two) == CUDA_ERROR_NOT_SUPPORTED);
    const CUlaunchConfig plain = config(4, 32, nullptr);
    int count = 0;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuOccupancyMaxPotentialClusterSize, &count, any, &plain);
}

}  // namespace

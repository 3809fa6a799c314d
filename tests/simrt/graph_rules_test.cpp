// What the calls on graphs refuse, and with which error.
#include "tests/simcuda/kernels.h"
#include "tests/simrt/graph_make.h"
#include "tests/support/process.h"

namespace {

using namespace sim;

SIM_TEST("graph: null arrays and parameters are refused", {}) {
    const Gpu gpu;
    const cudaGraph_t graph = create_graph();
    const cudaGraphNode_t a = add_empty(graph);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddDependencies, graph, nullptr, &a, nullptr, 1);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddDependencies, graph, &a, nullptr, nullptr, 1);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphRemoveDependencies, graph, nullptr, &a, nullptr, 1);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphRemoveDependencies, graph, &a, nullptr, nullptr, 1);
    RT_ANSWERS(cudaSuccess, cudaGraphAddDependencies, graph, nullptr, nullptr, nullptr, 0);
    RT_ANSWERS(cudaSuccess, cudaGraphRemoveDependencies, graph, nullptr, nullptr, nullptr, 0);

    const cudaHostNodeParams host{[](void*) {}, nullptr};
    cudaGraphNode_t node = nullptr;
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddHostNode, &node, graph, nullptr, 0, nullptr);
    RT_ANSWERS(cudaSuccess, cudaGraphAddHostNode, &node, graph, nullptr, 0, &host);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphHostNodeSetParams, node, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphHostNodeGetParams, node, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecHostNodeSetParams, instantiate(graph), node, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddNode, &node, graph, nullptr, nullptr, 0, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphNodeSetParams, node, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecNodeSetParams, instantiate(graph), node, nullptr);
}

SIM_TEST("graph: a circle can be built, not instantiated", {}) {
    const Gpu gpu;
    const cudaGraph_t graph = create_graph();
    const cudaGraphNode_t a = add_empty(graph), b = add_empty(graph);
    RT_ANSWERS(cudaSuccess, cudaGraphAddDependencies, graph, &a, &b, nullptr, 1);
    RT_ANSWERS(cudaSuccess, cudaGraphAddDependencies, graph, &b, &a, nullptr, 1);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddDependencies, graph, &a, &a, nullptr, 1);
    cudaGraphExec_t exec = nullptr;
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphInstantiate, &exec, graph, 0);
    cudaGraphInstantiateParams how{};
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphInstantiateWithParams, &exec, graph, &how);
    EXPECT(how.result_out == cudaGraphInstantiateInvalidStructure);
    // The same of a copy, and of a graph that holds one.
    cudaGraph_t clone = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphClone, &clone, graph);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphInstantiate, &exec, clone, 0);
    const cudaGraph_t parent = create_graph();
    cudaGraphNode_t child = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphAddChildGraphNode, &child, parent, nullptr, 0, graph);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphInstantiate, &exec, parent, 0);
    RT_ANSWERS(cudaSuccess, cudaGraphRemoveDependencies, graph, &b, &a, nullptr, 1);
    RT_ANSWERS(cudaSuccess, cudaGraphInstantiate, &exec, graph, 0);
}

SIM_TEST("graph: twenty thousand nodes in a row, of which each was added before the one that it waits for",
         {}) {
    const Gpu gpu;
    const cudaGraph_t graph = create_graph();
    static std::vector<int> ran;
    const auto add_host = [&](cudaHostFn_t function) {
        const cudaHostNodeParams host{function, nullptr};
        cudaGraphNode_t node = nullptr;
        RT_ANSWERS(cudaSuccess, cudaGraphAddHostNode, &node, graph, nullptr, 0, &host);
        return node;
    };
    std::vector<cudaGraphNode_t> nodes{add_host([](void*) { ran.push_back(2); })};
    for (int i = 0; i < 20'000; ++i) nodes.push_back(add_empty(graph));
    nodes.push_back(add_host([](void*) { ran.push_back(1); }));
    RT_ANSWERS(cudaSuccess, cudaGraphAddDependencies, graph, nodes.data() + 1, nodes.data(), nullptr,
               nodes.size() - 1);
    const cudaGraphExec_t exec = instantiate(graph);
    RT_ANSWERS(cudaSuccess, cudaGraphLaunch, exec, nullptr);
    RT_ANSWERS(cudaSuccess, cudaDeviceSynchronize);
    EXPECT((ran == std::vector{1, 2}));
}

SIM_TEST("graph: a linear copy node may be of 2 GiB and more", {}) {
    const Gpu gpu;
    // One piece of memory mapped often enough.
    constexpr std::size_t kPiece = 64 << 20, kBytes = (std::size_t{1} << 31) + kPiece;
    CUmemAllocationProp where{};
    where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    where.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle piece = 0;
    OK(cuMemCreate, &piece, kPiece, &where, 0);
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve, &address, kBytes, 0, 0, 0);
    for (std::size_t at = 0; at < kBytes; at += kPiece) OK(cuMemMap, address + at, kPiece, 0, piece, 0);
    const CUmemAccessDesc access{where.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess, address, kBytes, &access, 1);
    const cudaGraph_t graph = create_graph();
    cudaGraphNode_t node = nullptr;
    auto* const memory = reinterpret_cast<std::uint8_t*>(address);
    for (const std::size_t bytes : {kBytes, std::size_t{1} << 31}) {
        RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode1D, &node, graph, nullptr, 0, memory, memory, bytes,
                   cudaMemcpyDeviceToDevice);
        RT_ANSWERS(cudaSuccess, cudaGraphMemcpyNodeSetParams1D, node, memory, memory, bytes,
                   cudaMemcpyDeviceToDevice);
    }
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddMemcpyNode1D, &node, graph, nullptr, 0, memory, memory,
               kBytes + 1, cudaMemcpyDeviceToDevice);
    instantiate(graph);
}

SIM_TEST("copy: between devices, whichever side is called the host's", {}) {
    const Gpu gpu;
    const Memory memory;
    const auto data = pattern(4096, 3);
    for (const cudaMemcpyKind kind : {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost}) {
        for (const int how : {0, 1, 2}) {
            RT_ANSWERS(cudaSuccess, cudaMemcpy, memory.device, data.data(), 4096, cudaMemcpyHostToDevice);
            RT_ANSWERS(cudaSuccess, cudaMemset, memory.other, 0, 4096);
            if (how == 0) RT_ANSWERS(cudaSuccess, cudaMemcpy, memory.other, memory.device, 4096, kind);
            if (how == 1) {
                RT_ANSWERS(cudaSuccess, cudaMemcpyAsync, memory.other, memory.device, 4096, kind, nullptr);
            }
            if (how == 2) {
                const cudaGraph_t graph = create_graph();
                cudaGraphNode_t node = nullptr;
                RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode1D, &node, graph, nullptr, 0, memory.other,
                           memory.device, 4096, kind);
                RT_ANSWERS(cudaSuccess, cudaGraphLaunch, instantiate(graph), nullptr);
            }
            EXPECT(read_back(reinterpret_cast<CUdeviceptr>(memory.other), 4096) == data);
        }
        RT_ANSWERS(cudaErrorInvalidValue, cudaMemcpy, memory.other, memory.device + 1, 4096, kind);
    }
    std::vector<std::uint8_t> host(4096);
    RT_ANSWERS(cudaErrorInvalidValue, cudaMemcpy, host.data(), data.data(), 4096, cudaMemcpyHostToDevice);
    RT_ANSWERS(cudaErrorInvalidValue, cudaMemcpy, host.data(), data.data(), 4096, cudaMemcpyDeviceToHost);
}

SIM_TEST("graph: a linear copy node is of some bytes", {}) {
    const Gpu gpu;
    Memory memory;
    const cudaGraph_t graph = create_graph();
    cudaGraphNode_t node = nullptr;
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddMemcpyNode1D, &node, graph, nullptr, 0, memory.device,
               memory.host, 0, cudaMemcpyHostToDevice);
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode1D, &node, graph, nullptr, 0, memory.device, memory.host,
               16, cudaMemcpyHostToDevice);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphMemcpyNodeSetParams1D, node, memory.device, memory.host, 0,
               cudaMemcpyHostToDevice);
    const cudaGraphExec_t exec = instantiate(graph);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecMemcpyNodeSetParams1D, exec, node, memory.device,
               memory.host, 0, cudaMemcpyHostToDevice);
    CUDA_MEMCPY3D copy{};
    OK(cuGraphMemcpyNodeGetParams, node, &copy);
    copy.WidthInBytes = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams, exec, node, &copy, gpu.context);
}

SIM_TEST("graph: a fill of one row keeps the pitch it was given", {}) {
    const Gpu gpu;
    const Memory memory;
    cudaGraphNode_t node = nullptr;
    filling({memory.device, 128, 1, 1, 16, 1}, &node);
    cudaMemsetParams held{};
    RT_ANSWERS(cudaSuccess, cudaGraphMemsetNodeGetParams, node, &held);
    EXPECT(held.pitch == 128);
    cudaMemsetParams wrong{memory.device, 64, 1, 4, std::size_t{1} << 62, 2};
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphMemsetNodeSetParams, node, &wrong);
    wrong = {memory.device, 64, 1, 1, 16, (std::size_t{1} << 58) + 1};
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphMemsetNodeSetParams, node, &wrong);
}

SIM_TEST("graph: what is no event is a bad value", {}) {
    const Gpu gpu;
    int something = 0;
    cudaEvent_t event = nullptr;
    RT_ANSWERS(cudaSuccess, cudaEventCreate, &event);
    const cudaGraph_t graph = create_graph();
    cudaGraphNode_t record = nullptr, wait = nullptr, node = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphAddEventRecordNode, &record, graph, nullptr, 0, event);
    RT_ANSWERS(cudaSuccess, cudaGraphAddEventWaitNode, &wait, graph, nullptr, 0, event);
    const cudaGraphExec_t exec = instantiate(graph);
    for (const cudaEvent_t none : {cudaEvent_t{}, reinterpret_cast<cudaEvent_t>(&something)}) {
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddEventRecordNode, &node, graph, nullptr, 0, none);
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddEventWaitNode, &node, graph, nullptr, 0, none);
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphEventRecordNodeSetEvent, record, none);
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphEventWaitNodeSetEvent, wait, none);
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecEventRecordNodeSetEvent, exec, record, none);
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecEventWaitNodeSetEvent, exec, wait, none);
        cudaGraphNodeParams parameters{};
        parameters.type = cudaGraphNodeTypeEventRecord;
        parameters.eventRecord.event = none;
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddNode, &node, graph, nullptr, nullptr, 0, &parameters);
        parameters.type = cudaGraphNodeTypeWaitEvent;
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddNode, &node, graph, nullptr, nullptr, 0, &parameters);
    }
}

SIM_TEST("graph: flags, counts and attributes there are not", {}) {
    const Gpu gpu;
    const Memory memory;
    cudaGraphNode_t node = nullptr;
    const cudaGraph_t graph = filling({memory.device, 0, 1, 1, 16, 1}, &node);
    cudaGraphExec_t exec = nullptr;
    for (const unsigned long long flags : {2ull, 10ull, 16ull, ~0ull})
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphInstantiate, &exec, graph, flags);
    RT_ANSWERS(cudaSuccess, cudaGraphInstantiate, &exec, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphInstantiateParams how{};
    how.flags = cudaGraphInstantiateFlagUpload;
    RT_ANSWERS(cudaSuccess, cudaGraphInstantiateWithParams, &exec, graph, &how);

    cudaUserObject_t object = nullptr;
    RT_ANSWERS(
        cudaSuccess, cudaUserObjectCreate, &object, nullptr, [](void*) {}, 1, cudaUserObjectNoDestructorSync);
    RT_ANSWERS(cudaErrorInvalidValue, cudaUserObjectRelease, object, 0);
    RT_ANSWERS(cudaErrorInvalidValue, cudaUserObjectRetain, object, 0);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphRetainUserObject, graph, object, 0, 0);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphReleaseUserObject, graph, object, 0);
    RT_ANSWERS(cudaSuccess, cudaUserObjectRelease, object, 1);
}

SIM_TEST("graph: attributes a kernel's node does not have", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUgraph graph = create_graph();
    CUDA_KERNEL_NODE_PARAMS kernel{};
    CUdeviceptr out = 0;
    unsigned value = 0;
    void* arguments[] = {&out, &value};
    kernel.func = kernels["store"];
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = arguments;
    CUgraphNode node = nullptr;
    OK(cuGraphAddKernelNode, &node, graph, nullptr, 0, &kernel);
    CUkernelNodeAttrValue attribute{};
    for (const int none : {-1, 0, static_cast<int>(CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY), 1000}) {
        const auto id = static_cast<CUkernelNodeAttrID>(none);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute, node, id, &attribute);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetAttribute, node, id, &attribute);
    }
    const auto window = CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute, node, window, nullptr);
    attribute.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
    attribute.accessPolicyWindow.hitRatio = 1.0f;
    OK(cuGraphKernelNodeSetAttribute, node, window, &attribute);
    for (const float ratio : {-0.1f, 1.1f}) {
        attribute.accessPolicyWindow.hitRatio = ratio;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute, node, window, &attribute);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute, CU_STREAM_PER_THREAD, window, &attribute);
    }
    attribute.accessPolicyWindow.hitRatio = 0.5f;
    attribute.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute, node, window, &attribute);
}

SIM_TEST("graph: a copy of boxes whose pitch is less than its width", {}) {
    const Gpu gpu;
    Memory memory;
    const cudaGraph_t graph = create_graph();
    cudaGraphNode_t node = nullptr;
    cudaMemcpy3DParms copy{};
    copy.srcPtr = {memory.host, 32, 32, 4};
    copy.dstPtr = {memory.device, 32, 32, 4};
    copy.extent = {32, 4, 1};
    copy.kind = cudaMemcpyHostToDevice;
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode, &node, graph, nullptr, 0, &copy);
    for (cudaPitchedPtr* side : {&copy.srcPtr, &copy.dstPtr}) {
        side->pitch = 31;
        cudaGraphNode_t other = nullptr;
        RT_ANSWERS(cudaErrorInvalidPitchValue, cudaGraphAddMemcpyNode, &other, graph, nullptr, 0, &copy);
        RT_ANSWERS(cudaErrorInvalidPitchValue, cudaGraphMemcpyNodeSetParams, node, &copy);
        RT_ANSWERS(cudaErrorInvalidPitchValue, cudaMemcpy3D, &copy);
        side->pitch = 32;
    }
    // Beyond the end of what is allocated.
    copy.dstPos.z = 4096 / (32 * 4);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddMemcpyNode, &node, graph, nullptr, 0, &copy);
    copy.dstPos.z = 0;
    std::uint8_t* pinned = nullptr;
    RT_ANSWERS(cudaSuccess, cudaMallocHost, reinterpret_cast<void**>(&pinned), 4096);
    copy.srcPtr.ptr = pinned + 1;
    copy.srcPos.z = 4096 / (32 * 4) - 1;
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddMemcpyNode, &node, graph, nullptr, 0, &copy);
    copy.srcPtr.ptr = pinned;
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode, &node, graph, nullptr, 0, &copy);
}

SIM_TEST("graph: copies to and from variables have a direction", {}) {
    const Gpu gpu;
    Memory memory;
    const cudaGraph_t graph = create_graph();
    cudaGraphNode_t node = nullptr;
    const int symbol = 0;  // not looked up before the direction
    for (const cudaMemcpyKind kind : {cudaMemcpyDeviceToHost, cudaMemcpyHostToHost}) {
        RT_ANSWERS(cudaErrorInvalidMemcpyDirection, cudaGraphAddMemcpyNodeToSymbol, &node, graph, nullptr, 0,
                   &symbol, memory.host, 4, 0, kind);
        RT_ANSWERS(cudaErrorInvalidMemcpyDirection, cudaGraphMemcpyNodeSetParamsToSymbol, node, &symbol,
                   memory.host, 4, 0, kind);
    }
    for (const cudaMemcpyKind kind : {cudaMemcpyHostToDevice, cudaMemcpyHostToHost}) {
        RT_ANSWERS(cudaErrorInvalidMemcpyDirection, cudaGraphAddMemcpyNodeFromSymbol, &node, graph, nullptr,
                   0, memory.host, &symbol, 4, 0, kind);
        RT_ANSWERS(cudaErrorInvalidMemcpyDirection, cudaGraphMemcpyNodeSetParamsFromSymbol, node, memory.host,
                   &symbol, 4, 0, kind);
    }
    RT_ANSWERS(cudaErrorInvalidSymbol, cudaGraphAddMemcpyNodeToSymbol, &node, graph, nullptr, 0, &symbol,
               memory.host, 4, 0, cudaMemcpyHostToDevice);
}

SIM_TEST("graph: a drawing names its nodes", {}) {
    const Gpu gpu;
    Memory memory;
    const cudaGraph_t graph = create_graph();
    add_empty(graph);
    cudaGraphNode_t node = nullptr;
    const cudaMemsetParams fill{memory.device, 0, 1, 1, 16, 1};
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemsetNode, &node, graph, nullptr, 0, &fill);
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode1D, &node, graph, &node, 1, memory.other, memory.host, 16,
               cudaMemcpyHostToDevice);
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode1D, &node, graph, &node, 1, memory.host, memory.other, 16,
               cudaMemcpyDeviceToHost);
    const std::string path = support::scratch_file("graph.dot");
    RT_ANSWERS(cudaSuccess, cudaGraphDebugDotPrint, graph, path.c_str(), 0);
    const std::string text = support::read_file(path);
    for (const char* word : {"digraph", "EMPTY", "MEMSET", "MEMCPY HtoD", "MEMCPY DtoH", "->"})
        EXPECT(text.find(word) != std::string::npos);
}

cudaMemAllocNodeParams allocation(std::size_t bytes) {
    cudaMemAllocNodeParams parameters{};
    parameters.poolProps.allocType = cudaMemAllocationTypePinned;
    parameters.poolProps.location = {cudaMemLocationTypeDevice, 0};
    parameters.bytesize = bytes;
    return parameters;
}

SIM_TEST("graph memory: what a graph that allocates cannot do is not supported", {}) {
    const Gpu gpu;
    const cudaGraph_t graph = create_graph(), parent = create_graph();
    cudaGraphNode_t node = nullptr, after = nullptr, child = nullptr;
    auto parameters = allocation(4096);
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemAllocNode, &node, graph, nullptr, 0, &parameters);
    RT_ANSWERS(cudaSuccess, cudaGraphAddEmptyNode, &after, graph, &node, 1);
    instantiate(graph);
    cudaGraphExec_t second = nullptr;
    RT_ANSWERS(cudaErrorNotSupported, cudaGraphInstantiate, &second, graph, 0);
    cudaGraph_t clone = nullptr;
    RT_ANSWERS(cudaErrorNotSupported, cudaGraphClone, &clone, graph);
    RT_ANSWERS(cudaErrorNotSupported, cudaGraphAddChildGraphNode, &child, parent, nullptr, 0, graph);
    RT_ANSWERS(cudaErrorNotSupported, cudaGraphRemoveDependencies, graph, &node, &after, nullptr, 1);
    RT_ANSWERS(cudaErrorNotSupported, cudaGraphDestroyNode, after);
}

SIM_TEST("graph memory: sizes and places there are not", {}) {
    const Gpu gpu;
    const cudaGraph_t graph = create_graph();
    cudaGraphNode_t node = nullptr;
    for (const std::size_t bytes : {~std::size_t{0}, ~std::size_t{0} - 4096, std::size_t{1} << 60}) {
        auto parameters = allocation(bytes);
        RT_ANSWERS(cudaErrorMemoryAllocation, cudaGraphAddMemAllocNode, &node, graph, nullptr, 0,
                   &parameters);
    }
    cudaMemPool_t pool = nullptr;
    RT_ANSWERS(cudaSuccess, cudaDeviceGetDefaultMemPool, &pool, 0);
    const auto refused = [&](cudaMemLocation location, cudaError_t error) {
        auto parameters = allocation(4096);
        parameters.poolProps.location = location;
        RT_ANSWERS(error, cudaGraphAddMemAllocNode, &node, graph, nullptr, 0, &parameters);
        cudaMemPool_t created = nullptr;
        RT_ANSWERS(error, cudaMemPoolCreate, &created, &parameters.poolProps);
        cudaMemAccessFlags flags{};
        RT_ANSWERS(error, cudaMemPoolGetAccess, &flags, pool, &location);
        cudaMemAccessDesc description{location, cudaMemAccessFlagsProtReadWrite};
        parameters = allocation(4096);
        parameters.accessDescs = &description;
        parameters.accessDescCount = 1;
        RT_ANSWERS(error, cudaGraphAddMemAllocNode, &node, graph, nullptr, 0, &parameters);
    };
    refused({cudaMemLocationTypeDevice, -1}, cudaErrorInvalidValue);
    refused({cudaMemLocationTypeDevice, 1}, cudaErrorInvalidValue);
    refused({cudaMemLocationTypeInvalid, 0}, cudaErrorInvalidValue);
    refused({static_cast<cudaMemLocationType>(77), 0}, cudaErrorInvalidValue);
    refused({cudaMemLocationTypeHost, 0}, cudaErrorNotSupported);
}

}  // namespace

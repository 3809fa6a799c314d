// The end of a context is the end of everything in it.
#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

constexpr std::size_t kMiB = 1 << 20;

// Something of each kind that takes memory of the device.
void fill_context(const Gpu& gpu, CUcontext context) {
    const Kernels kernels;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, kMiB);
    std::size_t pitch = 0;
    CUdeviceptr pitched = 0;
    OK(cuMemAllocPitch, &pitched, &pitch, 1000, 100, 4);
    CUdeviceptr pooled = 0;
    OK(cuMemAllocAsync, &pooled, kMiB, stream);
    void* pinned = nullptr;
    OK(cuMemHostAlloc, &pinned, kMiB, 0);
    CUdeviceptr managed = 0;
    OK(cuMemAllocManaged, &managed, kMiB, CU_MEM_ATTACH_GLOBAL);

    const CUDA_ARRAY3D_DESCRIPTOR descriptor{256, 256, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    OK(cuArray3DCreate, &resource.res.array.hArray, &descriptor);
    CUmipmappedArray mipmapped = nullptr;
    OK(cuMipmappedArrayCreate, &mipmapped, &descriptor, 4);
    const CUDA_TEXTURE_DESC sampling{};
    CUtexObject texture = 0;
    OK(cuTexObjectCreate, &texture, &resource, &sampling, nullptr);
    CUsurfObject surface = 0;
    OK(cuSurfObjectCreate, &surface, &resource);
    CUevent event = nullptr;
    OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    OK(cuEventRecord, event, stream);

    // A graph whose allocation is left over, and which has a condition.
    CUgraph graph = nullptr;
    OK(cuGraphCreate, &graph, 0);
    CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
    allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    allocation.bytesize = kMiB;
    CUgraphNode node = nullptr;
    OK(cuGraphAddMemAllocNode, &node, graph, nullptr, 0, &allocation);
    CUgraphNodeParams conditional{};
    conditional.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    OK(cuGraphConditionalHandleCreate, &conditional.conditional.handle, graph, context, 0,
       CU_GRAPH_COND_ASSIGN_DEFAULT);
    conditional.conditional.type = CU_GRAPH_COND_TYPE_IF;
    conditional.conditional.size = 1;
    conditional.conditional.ctx = context;
    OK(cuGraphAddNode, &node, graph, nullptr, nullptr, 0, &conditional);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate, &exec, graph, 0);
    OK(cuGraphLaunch, exec, stream);
    LAUNCH(kernels["store"], 1, 1, stream, p, 1u);
    OK(cuMemcpyDtoHAsync, pinned, p, kMiB, stream);
}

SIM_TEST("context: its end gives all memory back, with work under way", {{"SIMCUDA_D2H_GBPS", "0.5"}}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    for (int round = 0; round < 3; ++round) {
        CUcontext context = nullptr;
        OK(cuCtxCreate, &context, nullptr, 0, gpu.device);
        fill_context(gpu, context);
        OK(cuCtxDestroy, context);
        EXPECT(free_bytes() == before);
    }
}

SIM_TEST("context: so does a reset of the primary one", {}) {
    Gpu gpu;
    const std::size_t before = free_bytes();
    fill_context(gpu, gpu.context);
    OK(cuDevicePrimaryCtxReset, gpu.device);
    OK(cuDevicePrimaryCtxRetain, &gpu.context, gpu.device);
    OK(cuCtxSetCurrent, gpu.context);
    EXPECT(free_bytes() == before);
}

}  // namespace

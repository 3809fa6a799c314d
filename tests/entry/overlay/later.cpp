// What a driver newer than the simulated one has: functions of CUDA 13.1 to 13.5, and some that no CUDA has.
#include "tests/entry/overlay/later.h"

#include <thread>

#include "tests/entry/overlay/simulated.h"

static CUresult one_copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUmemcpyAttributes* attributes,
                         CUstream stream, decltype(&cuMemcpyAsync) copy) {
    if (!attributes || attributes->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    return copy(to, from, bytes, stream);
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                     CUmemcpyAttributes* attributes, CUstream stream) {
    return one_copy(to, from, bytes, attributes, stream, SIM(cuMemcpyAsync));
}

CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                          CUmemcpyAttributes* attributes, CUstream stream) {
    return one_copy(to, from, bytes, attributes, stream, SIM(cuMemcpyAsync_ptsz));
}

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* copy, unsigned long long flags,
                                       CUstream stream) {
    return cuMemcpy3DBatchAsync_v2(1, copy, flags, stream);
}

CUresult cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP* copy, unsigned long long flags,
                                            CUstream stream) {
    return cuMemcpy3DBatchAsync_v2_ptsz(1, copy, flags, stream);
}

CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn call, void* with, unsigned int) {
    return SIM(cuLaunchHostFunc)(stream, call, with);
}

CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn call, void* with, unsigned int) {
    return SIM(cuLaunchHostFunc_ptsz)(stream, call, with);
}

CUresult cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                           const CUgraphEdgeData* edges, std::size_t count, CUgraphNodeParams* parameters) {
    return SIM(cuGraphAddNode_v2)(node, graph, after, edges, count, parameters);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* parameters) {
    return SIM(cuGraphNodeSetParams)(node, parameters);
}

CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                       CUgraphRecaptureCallback, void*) {
    return SIM(cuStreamBeginCaptureToGraph)(stream, graph, nullptr, nullptr, 0, mode);
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                            CUgraphRecaptureCallback, void*) {
    return SIM(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, nullptr, nullptr, 0, mode);
}

CUresult cuTensorMapSetAllocationClass(CUtensorMap* map, CUtensorMapAllocClass, CUtensorMapAllocClass*) {
    map->opaque[5] ^= 1;
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice, std::size_t offset,
                                CUdeviceptr address, std::size_t bytes, unsigned long long flags) {
    return cuMulticastBindAddr(object, offset, address, bytes, flags);
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice, std::size_t offset,
                               CUmemGenericAllocationHandle handle, std::size_t from, std::size_t bytes,
                               unsigned long long flags) {
    return cuMulticastBindMem(object, offset, handle, from, bytes, flags);
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId, CUdevice, cuuint64_t offset, void* address,
                                   cuuint64_t bytes, unsigned long long flags) {
    return cuMulticastBindAddr(0, offset, reinterpret_cast<CUdeviceptr>(address), bytes, flags);
}

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId, CUdevice, cuuint64_t offset,
                                  CUmemGenericAllocationHandle handle, cuuint64_t from, cuuint64_t bytes,
                                  unsigned long long flags) {
    return cuMulticastBindMem(0, offset, handle, from, bytes, flags);
}

CUresult cuFutureFill(CUdeviceptr at, std::uint32_t word, std::size_t words, CUstream stream) {
    return SIM(cuMemsetD32Async)(at, word, words, stream);
}

CUresult cuFutureFill_ptsz(CUdeviceptr at, std::uint32_t word, std::size_t words, CUstream stream) {
    return SIM(cuMemsetD32Async_ptsz)(at, word, words, stream);
}

CUresult cuFutureCapture(CUstream stream) {
    return SIM(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

CUresult cuFutureStream(CUstream* stream) {
    return SIM(cuStreamCreate)(stream, CU_STREAM_NON_BLOCKING);
}

CUresult cuFutureAllocate(CUdeviceptr* at, std::size_t bytes) {
    return SIM(cuMemAlloc_v2)(at, bytes);
}

CUresult cuFutureWait(std::atomic<bool>* entered, std::atomic<bool>* open) {
    *entered = true;
    while (!*open) std::this_thread::yield();
    return CUDA_SUCCESS;
}

CUresult cuFutureChangeKernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* kernel) {
    return SIM(cuGraphExecKernelNodeSetParams_v2)(exec, node, kernel);
}

CUresult cuFutureMany(int a, double b, std::int64_t c, float d, int e, int f, int g, overlay::Large large,
                      int h, double i, double j, double k, double l, double m, double n, double o,
                      overlay::Told* told) {
    *told = {{a, c, e, f, g, h}, {b, d, i, j, k, l, m, n, o}, large};
    return CUDA_ERROR_NOT_READY;
}

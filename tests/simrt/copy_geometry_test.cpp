// Pitches, extents and positions that no copy can have.
#include <cstdint>
#include <limits>

#include "tests/simrt/runtime.h"

namespace {

using namespace sim;

constexpr std::size_t kWidth = 64, kRows = 4, kSlices = 3;
constexpr std::size_t kLargest = std::numeric_limits<std::size_t>::max();

struct GeometryRig {
    GeometryRig() {
        RT_ANSWERS(cudaSuccess, cudaMalloc, reinterpret_cast<void**>(&device), sizeof host);
        copy.srcPtr = {host, kWidth, kWidth, kRows};
        copy.dstPtr = {device, kWidth, kWidth, kRows};
        copy.extent = {kWidth, kRows, kSlices};
        copy.kind = cudaMemcpyDefault;
        RT_ANSWERS(cudaSuccess, cudaGraphCreate, &graph, 0);
        RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode, &node, graph, nullptr, 0, &copy);
        RT_ANSWERS(cudaSuccess, cudaGraphInstantiate, &exec, graph, 0);
    }

    // All calls that take such a description refuse it.
    void refused() {
        cudaGraphNode_t other = nullptr;
        RT_ANSWERS(cudaErrorInvalidValue, cudaMemcpy3D, &copy);
        RT_ANSWERS(cudaErrorInvalidValue, cudaMemcpy3DAsync, &copy, nullptr);
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddMemcpyNode, &other, graph, nullptr, 0, &copy);
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphMemcpyNodeSetParams, node, &copy);
        RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecMemcpyNodeSetParams, exec, node, &copy);
    }

    // The driver's own, without the runtime before them.
    void refused_by_driver(const CUDA_MEMCPY3D& box) {
        CUgraphNode other = nullptr;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D, &box);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DAsync, &box, nullptr);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemcpyNode, &other, graph, nullptr, 0, &box, gpu.context);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeSetParams, node, &box);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams, exec, node, &box, gpu.context);
    }

    Gpu gpu;
    std::uint8_t host[kWidth * kRows * kSlices] = {};
    std::uint8_t* device = nullptr;
    cudaMemcpy3DParms copy{};
    cudaGraph_t graph = nullptr;
    cudaGraphNode_t node = nullptr;
    cudaGraphExec_t exec = nullptr;
};

SIM_TEST("copy: a pitch of the maximum is refused, on either side", {}) {
    int largest = 0;
    GeometryRig rig;
    RT_ANSWERS(cudaSuccess, cudaDeviceGetAttribute, &largest, cudaDevAttrMaxPitch, 0);
    for (cudaPitchedPtr* side : {&rig.copy.srcPtr, &rig.copy.dstPtr}) {
        for (const std::size_t pitch : {static_cast<std::size_t>(largest), kLargest}) {
            side->pitch = pitch;
            rig.refused();
        }
        side->pitch = kWidth;
    }
    RT_ANSWERS(cudaSuccess, cudaMemcpy3D, &rig.copy);
    CUDA_MEMCPY3D box{};
    OK(cuGraphMemcpyNodeGetParams, rig.node, &box);
    for (std::size_t* pitch : {&box.srcPitch, &box.dstPitch}) {
        for (const std::size_t wrong : {static_cast<std::size_t>(largest), kLargest}) {
            *pitch = wrong;
            rig.refused_by_driver(box);
        }
        *pitch = kWidth;
    }
    OK(cuMemcpy3D, &box);
}

SIM_TEST("copy: sizes that wrap around are refused", {}) {
    GeometryRig rig;
    for (std::size_t* value :
         {&rig.copy.srcPtr.ysize, &rig.copy.dstPtr.ysize, &rig.copy.srcPos.y, &rig.copy.srcPos.z,
          &rig.copy.dstPos.z, &rig.copy.extent.height, &rig.copy.extent.depth}) {
        const std::size_t before = *value;
        for (const std::size_t wrong : {kLargest, kLargest / kWidth + 1, kLargest / 2 + 1}) {
            *value = wrong;
            rig.refused();
        }
        *value = before;
    }
    RT_ANSWERS(cudaSuccess, cudaMemcpy3D, &rig.copy);
}

}  // namespace

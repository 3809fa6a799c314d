// Executable graphs whose operands find no room together: refused as the driver refuses.
#include <memory>

#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

constexpr int kMany = 10;

// As many sets in a graph: of buffers of their own, which are more than the GPU has, or all of one.
CUgraph sets_of(const std::vector<std::unique_ptr<Buffer>>& buffers, bool own, const Gpu& gpu) {
    const CUgraph graph = new_graph();
    for (int i = 0; i < kMany; ++i) add_set(graph, set_of(buffers[own ? i : 0]->at(), 7), gpu);
    return graph;
}

}  // namespace

FAMILY_TEST("graphs: one whose operands find no room is refused in every form, and says so") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (int i = 0; i < kMany; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    const CUgraph large = sets_of(buffers, true, gpu);
    const CUgraph small = sets_of(buffers, false, gpu);
    const auto anything = reinterpret_cast<CUgraphNode>(77);
    CUgraphExec exec = nullptr;
    CUgraphNode node = anything;
    char log[8] = "unsaid";
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiate, &exec, large, &node, log, sizeof log);
    EXPECT(!node && log[0] == 0);
    node = anything;
    log[0] = 'u';
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiate_v2, &exec, large, &node, log, sizeof log);
    EXPECT(!node && log[0] == 0);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiate_v2, &exec, large, nullptr, nullptr, 0);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiateWithFlags, &exec, large, 0);
    for (const auto form : {CU(cuGraphInstantiateWithParams), CU(cuGraphInstantiateWithParams_ptsz)}) {
        CUDA_GRAPH_INSTANTIATE_PARAMS params{};
        params.hErrNode_out = anything;
        EXPECT(form(&exec, large, &params) == CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT(params.result_out == CUDA_GRAPH_INSTANTIATE_ERROR && !params.hErrNode_out);
    }
    exec = instantiate(small);
    CUgraphExecUpdateResultInfo info{CU_GRAPH_EXEC_UPDATE_SUCCESS, anything, anything};
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphExecUpdate_v2, exec, large, &info);
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR && !info.errorNode && !info.errorFromNode);
    node = anything;
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphExecUpdate, exec, large, &node, &result);
    EXPECT(result == CU_GRAPH_EXEC_UPDATE_ERROR && !node);
    launch_and_wait(exec, stream);
    EXPECT(buffers[0]->read() == std::vector<std::uint8_t>(kBuffer, 7));
    for (int i = 1; i < kMany; ++i) EXPECT(buffers[i]->holds(i));
}

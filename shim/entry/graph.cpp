// Executable graphs: made, updated as a whole, launched, destroyed; graphs destroyed.
#include "shim/access/graphs.h"
#include "shim/device/driver_table.h"
#include "shim/entry/cross_device_copy.h"
#include "shim/entry/forms.h"
#include "shim/entry/guard.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"
#include "shim/util/settings.h"

namespace lms::entry {
namespace {

using device::driver;

// Where the driver is not asked, `refused()` tells the program what it would.
template <typename Refused, typename Instantiate>
CUresult instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags, Refused&& refused,
                     Instantiate&& call) {
    return guarded_taking([&]() -> CUresult {
        shim::GraphHold hold(shim::part_of(graph));
        if (hold.status() != CUDA_SUCCESS) {
            refused();
            return hold.status();
        }
        const CUresult status = shim::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS)
            hold.give_to(*exec, (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0);
        return status;
    });
}

// The forms of before CUDA 12 name the node at fault, and say in a buffer what is wrong with it.
template <typename Instantiate>
CUresult instantiate_old(CUgraphExec* exec, CUgraph graph, CUgraphNode* at_fault, char* log,
                         std::size_t log_bytes, Instantiate&& call) {
    const auto refused = [=] {
        if (at_fault) *at_fault = nullptr;
        if (log && log_bytes > 0) *log = '\0';
    };
    return instantiate(exec, graph, 0, refused, call);
}

template <typename Instantiate>
CUresult instantiate(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params,
                     Instantiate&& call) {
    const auto refused = [=] {
        if (!params) return;
        params->hErrNode_out = nullptr;
        params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    };
    return instantiate(exec, graph, params ? params->flags : 0, refused, call);
}

// `told(result)` tells the program what the driver would, were it asked.
template <typename Told, typename Update>
CUresult update(CUgraphExec exec, CUgraph graph, Told&& told, Update&& call) {
    return guarded([&]() -> CUresult {
        shim::GraphHold hold(shim::part_of(graph));
        if (hold.status() != CUDA_SUCCESS) {
            told(CU_GRAPH_EXEC_UPDATE_ERROR);
            return hold.status();
        }
        const CUresult status = call();
        if (status == CUDA_SUCCESS) hold.update(exec);
        return status;
    });
}

CUresult launch(CUgraphExec exec, CUstream where, shim::Call call) {
    return guarded([&] {
        trace::add(trace::counters().launches);
        // Captured, it is read again with the graph it becomes part of.
        if (!shim::capturing(where)) shim::note_graph_copies(exec);
        note_graph_use(where);
        return shim::submit(
            where,
            [&] {
                shim::WorkingSet reach = shim::reach_of(exec, where);
                reach.code = exec;
                if (trace::writer() || settings().check) reach.label = "graph";
                return reach;
            },
            call);
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using device::driver;

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
    return entry::instantiate_old(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize, [&] {
        return driver().cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
    });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
    return entry::instantiate_old(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize, [&] {
        return driver().cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
    });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
    return entry::instantiate(
        phGraphExec, hGraph, flags, [] {},
        [&] { return driver().cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags); });
}

LMS_FORMS(cuGraphInstantiateWithParams, _ptsz,
          (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* params),
          return entry::instantiate(phGraphExec, hGraph, params,
                                    [&] { return Form::real(phGraphExec, hGraph, params); });)

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
    const auto told = [=](CUgraphExecUpdateResult result) {
        if (hErrorNode_out) *hErrorNode_out = nullptr;
        if (updateResult_out) *updateResult_out = result;
    };
    return entry::update(hGraphExec, hGraph, told, [&] {
        return driver().cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out);
    });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
    const auto told = [=](CUgraphExecUpdateResult result) {
        if (resultInfo) *resultInfo = {.result = result, .errorNode = nullptr, .errorFromNode = nullptr};
    };
    return entry::update(hGraphExec, hGraph, told,
                         [&] { return driver().cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo); });
}

LMS_FORMS(cuGraphLaunch, _ptsz, (CUgraphExec hGraphExec, CUstream hStream),
          return entry::launch(hGraphExec, Form::stream(hStream),
                               [&] { return Form::real(hGraphExec, hStream); });)

CUresult cuGraphDestroy(CUgraph hGraph) {
    return entry::guarded([&] {
        const shim::KnownBodies known = shim::forget_bodies(hGraph);
        const CUresult status = driver().cuGraphDestroy(hGraph);
        if (status != CUDA_SUCCESS) {
            for (const auto& [node, bodies] : known) shim::note_bodies(node, bodies);
        }
        return status;
    });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    return entry::guarded([&] {
        shim::GraphEnd end(hGraphExec);
        const CUresult status = driver().cuGraphExecDestroy(hGraphExec);
        if (status != CUDA_SUCCESS) end.refused();
        return status;
    });
}

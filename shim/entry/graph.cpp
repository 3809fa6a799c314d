// Executable graphs: made, updated as a whole, launched, destroyed; graphs destroyed.
#include <optional>
#include <utility>

#include "shim/access/graphs.h"
#include "shim/device/driver_table.h"
#include "shim/entry/cross_device_copy.h"
#include "shim/entry/forms.h"
#include "shim/entry/guard.h"
#include "shim/session/stream_turns.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"
#include "shim/util/log.h"
#include "shim/util/settings.h"

namespace lms::entry {
namespace {

using device::driver;

// Where the driver is not asked, `refused()` tells the program what it would.
template <typename Refused, typename Instantiate>
CUresult instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags, Refused&& refused,
                     Instantiate&& call) {
    return guarded_taking([&]() -> CUresult {
        access::GraphHold hold(access::part_of(graph));
        if (hold.status() != CUDA_SUCCESS) {
            refused();
            return hold.status();
        }
        const CUresult status = session::call_with_oom_retry(call);
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
        access::GraphHold hold(access::part_of(graph));
        if (hold.status() != CUDA_SUCCESS) {
            told(CU_GRAPH_EXEC_UPDATE_ERROR);
            return hold.status();
        }
        const CUresult status = session::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS) hold.update(exec);
        return status;
    });
}

CUresult launch(const access::KernelStep& kernel, const std::vector<CUlaunchAttribute>& attributes,
                CUstream where) {
    std::size_t bytes = kernel.bytes.size();
    void* buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(kernel.bytes.data()),
                      CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    const bool as_buffer = kernel.parameters.empty() && bytes > 0;
    void** const parameters = as_buffer ? nullptr : const_cast<void**>(kernel.parameters.data());
    void** const extra = as_buffer ? buffer : nullptr;
    const auto& [x, y, z] = kernel.blocks;
    const auto& [threads_x, threads_y, threads_z] = kernel.threads;
    if (attributes.empty()) {
        return cuLaunchKernel(kernel.function, x, y, z, threads_x, threads_y, threads_z, kernel.shared_bytes,
                              where, parameters, extra);
    }
    CUlaunchConfig config{x,
                          y,
                          z,
                          threads_x,
                          threads_y,
                          threads_z,
                          kernel.shared_bytes,
                          where,
                          const_cast<CUlaunchAttribute*>(attributes.data()),
                          static_cast<unsigned>(attributes.size())};
    return cuLaunchKernelEx(&config, kernel.function, parameters, extra);
}

CUresult set(const CUDA_MEMSET_NODE_PARAMS& set, CUstream where) {
    const bool rows = set.height > 1;
    switch (set.elementSize) {
        case 1: {
            const auto value = static_cast<unsigned char>(set.value);
            return rows ? cuMemsetD2D8Async(set.dst, set.pitch, value, set.width, set.height, where)
                        : cuMemsetD8Async(set.dst, value, set.width, where);
        }
        case 2: {
            const auto value = static_cast<unsigned short>(set.value);
            return rows ? cuMemsetD2D16Async(set.dst, set.pitch, value, set.width, set.height, where)
                        : cuMemsetD16Async(set.dst, value, set.width, where);
        }
        default:
            return rows ? cuMemsetD2D32Async(set.dst, set.pitch, set.value, set.width, set.height, where)
                        : cuMemsetD32Async(set.dst, set.value, set.width, where);
    }
}

// Copies of one row are not of the form that has a longest row.
CUresult copy(const CUDA_MEMCPY3D& copy, CUstream where) {
    const bool array = copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY;
    if (array || copy.Height != 1 || copy.Depth != 1) return cuMemcpy3DAsync_v2(&copy, where);
    return cuMemcpyAsync(access::destination_of(copy).begin, access::source_of(copy).begin, copy.WidthInBytes,
                         where);
}

CUresult launch(const access::PlacedStep& placed, CUstream where) {
    const access::GraphStep& step = *placed.step;
    if (const auto* const kernel = std::get_if<access::KernelStep>(&step))
        return launch(*kernel, placed.attributes, where);
    if (const auto* const one = std::get_if<CUDA_MEMCPY3D>(&step)) return copy(*one, where);
    return set(std::get<CUDA_MEMSET_NODE_PARAMS>(step), where);
}

// Whether the driver has refused a call, rather than told of what earlier work did.
bool is_refusal(CUresult status, CUstream where) {
    return status != CUDA_SUCCESS && driver().cuStreamQuery(where) != status;
}

// As if the program had made them: each waits for what it names itself. Nothing: the first is refused, as it
// may be for what was allowed when its node was made. Once some have run, no answer may make the program try
// again.
std::optional<CUresult> launch_steps(const access::GraphSteps& steps, CUstream where,
                                     session::SubmittingPieces& pieces) {
    bool begun = false;
    for (const access::PlacedStep& each : steps) {
        const CUresult status = launch(each, where);
        if (status != CUDA_SUCCESS && is_refusal(status, where)) {
            if (!begun) return std::nullopt;
            log::error(
                "graph launch: node {} of {} is refused after others have run (error {}), so the program "
                "gets CUDA_ERROR_LAUNCH_FAILED",
                &each - steps.data() + 1, steps.size(), static_cast<int>(status));
            return CUDA_ERROR_LAUNCH_FAILED;
        }
        if (status != CUDA_SUCCESS) return status;
        begun = true;
        pieces.submitted();
    }
    return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec exec, CUstream where, session::Call call) {
    const auto look = [&] {
        session::WorkingSet reach = access::reach_of(exec, where);
        reach.code = exec;
        if (trace::writer() || settings().check) reach.label = "graph";
        return reach;
    };
    const auto whole = [&] {
        const CUresult status = call();
        if (status == CUDA_SUCCESS) access::note_whole(exec, where);
        return status;
    };
    return guarded([&] {
        trace::add(trace::counters().launches);
        note_graph_use(where);
        // Captured, it is read again with the graph it becomes part of.
        if (program::capturing(where)) return session::submit(where, look, call);
        access::note_graph_copies(exec);
        CUresult status = access::await_steps(exec, where);
        if (status != CUDA_SUCCESS || session::try_fast_path(where, whole, status)) return status;
        session::WorkingSet reach = look();
        const session::AsOne as_one = session::as_one(reach);
        if (as_one == session::AsOne::Fits)
            return session::submit_after_look(
                where, [&] { return std::move(reach); }, whole);
        // Until room is found much may change: it is looked at anew.
        const auto steps = access::steps_of(exec, where, as_one);
        if (!steps) return session::submit_after_look(where, look, whole);
        session::SubmittingPieces pieces(where);
        if (!pieces || program::capturing(where)) return session::submit_after_look(where, look, whole);
        const auto launched = launch_steps(*steps, where, pieces);
        if (!launched) return session::submit_after_look(where, look, whole);
        access::note_steps(exec, where);
        return *launched;
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

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
    access::user_objects_used();
    return driver().cuGraphRetainUserObject(graph, object, count, flags);
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    return entry::guarded([&] {
        const access::KnownBodies known = access::forget_bodies(hGraph);
        const CUresult status = driver().cuGraphDestroy(hGraph);
        if (status != CUDA_SUCCESS) {
            for (const auto& [node, bodies] : known) access::note_bodies(node, bodies);
        }
        return status;
    });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    return entry::guarded_end<access::GraphEnd>(hGraphExec,
                                                [&] { return driver().cuGraphExecDestroy(hGraphExec); });
}

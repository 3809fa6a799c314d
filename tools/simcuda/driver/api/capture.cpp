// Stream capture: cuStreamBeginCapture and what goes with it.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/graph/graph_capture.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

void check_mode(CUstreamCaptureMode mode) {
    require(mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
                mode == CU_STREAM_CAPTURE_MODE_RELAXED,
            CUDA_ERROR_INVALID_VALUE);
}

CUresult begin(Site site, CUstream handle, CUstreamCaptureMode mode) {
    return call(site.entry, [&] {
        check_mode(mode);
        begin_capture(*resolve_anywhere(handle, site.per_thread), mode);
        return CUDA_SUCCESS;
    });
}

// Answers what the caller has room for. The pointers stay valid until the capture goes on.
struct Wanted {
    CUstreamCaptureStatus* status;
    cuuint64_t* id;
    CUgraph* graph = nullptr;
    const CUgraphNode** nodes = nullptr;
    const CUgraphEdgeData** edges = nullptr;
    std::size_t* count = nullptr;
};

CUresult information(Site site, CUstream handle, const Wanted& wanted) {
    return call(site.entry, [&] {
        require(wanted.status != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve_anywhere(handle, site.per_thread);
        const bool legacy = stream->kind == Stream::Kind::Legacy;
        require(!legacy || !legacy_stream_is_barred(stream->context), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        const auto capture = capture_of(*stream);
        *wanted.status = CU_STREAM_CAPTURE_STATUS_NONE;
        if (!capture) return CUDA_SUCCESS;
        std::lock_guard lock(capture_mutex());
        *wanted.status =
            capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (capture->invalidated) return CUDA_SUCCESS;
        const GraphCapture::Position& position = capture->position(*stream);
        if (wanted.id) *wanted.id = capture->id;
        if (wanted.graph) *wanted.graph = capture->graph->handle();
        if (wanted.nodes) *wanted.nodes = position.nodes.data();
        if (wanted.edges) *wanted.edges = position.edges.data();
        if (wanted.count) *wanted.count = position.nodes.size();
        return CUDA_SUCCESS;
    });
}

GraphCapture::Position position_of(const CUgraphNode* nodes, const CUgraphEdgeData* edges, std::size_t count,
                                   const Graph& graph) {
    require(nodes != nullptr || count == 0, CUDA_ERROR_INVALID_VALUE);
    GraphCapture::Position position;
    for (std::size_t i = 0; i < count; ++i) {
        require(checked_node(nodes[i])->graph == &graph, CUDA_ERROR_INVALID_VALUE);
        position.nodes.push_back(nodes[i]);
        position.edges.push_back(edges ? edges[i] : CUgraphEdgeData{});
    }
    return position;
}

CUresult update_dependencies(Site site, CUstream handle, const CUgraphNode* nodes,
                             const CUgraphEdgeData* edges, std::size_t count, unsigned flags) {
    return call(site.entry, [&] {
        require(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve_anywhere(handle, site.per_thread);
        const auto capture = capture_of(*stream);
        require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
        std::lock_guard lock(capture_mutex());
        capture->require_valid();
        GraphCapture::Position given = position_of(nodes, edges, count, *capture->graph);
        GraphCapture::Position& position = capture->position(*stream);
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
            capture->dropped.insert(capture->dropped.end(), position.nodes.begin(), position.nodes.end());
            position = {};
        }
        position.nodes.insert(position.nodes.end(), given.nodes.begin(), given.nodes.end());
        position.edges.insert(position.edges.end(), given.edges.begin(), given.edges.end());
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_STREAM_API(cuStreamBeginCapture, _ptsz, (CUstream stream), (stream)) {
    return begin(site, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SIMCUDA_STREAM_API(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
                   (stream, mode)) {
    return begin(site, stream, mode);
}

SIMCUDA_STREAM_API(cuStreamBeginCaptureToGraph, _ptsz,
                   (CUstream handle, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* edges,
                    std::size_t count, CUstreamCaptureMode mode),
                   (handle, graph, nodes, edges, count, mode)) {
    return call(site.entry, [&] {
        check_mode(mode);
        auto into = checked_graph(graph);
        auto position = position_of(nodes, edges, count, *into);
        begin_capture(*resolve_anywhere(handle, site.per_thread), mode, into, std::move(position));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuStreamEndCapture, _ptsz, (CUstream handle, CUgraph* graph), (handle, graph)) {
    return call(site.entry, [&] {
        const auto stream = resolve_anywhere(handle, site.per_thread);
        const auto capture = capture_of(*stream);
        // Whoever captures into a graph of their own has it already.
        require(graph != nullptr || (capture != nullptr && !capture->owns_graph), CUDA_ERROR_INVALID_VALUE);
        if (graph != nullptr) *graph = nullptr;
        const CUgraph ended = end_capture(*stream);
        if (graph != nullptr) *graph = ended;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus* status),
                   (stream, status)) {
    return information(site, stream, {status, nullptr});
}

SIMCUDA_STREAM_API(cuStreamGetCaptureInfo, _ptsz,
                   (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id), (stream, status, id)) {
    return information(site, stream, {status, id});
}

SIMCUDA_STREAM_API(cuStreamGetCaptureInfo_v2, _ptsz,
                   (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                    const CUgraphNode** nodes, std::size_t* count),
                   (stream, status, id, graph, nodes, count)) {
    return information(site, stream, {status, id, graph, nodes, nullptr, count});
}

SIMCUDA_STREAM_API(cuStreamGetCaptureInfo_v3, _ptsz,
                   (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                    const CUgraphNode** nodes, const CUgraphEdgeData** edges, std::size_t* count),
                   (stream, status, id, graph, nodes, edges, count)) {
    return information(site, stream, {status, id, graph, nodes, edges, count});
}

SIMCUDA_STREAM_API(cuStreamUpdateCaptureDependencies, _ptsz,
                   (CUstream stream, CUgraphNode* nodes, std::size_t count, unsigned flags),
                   (stream, nodes, count, flags)) {
    return update_dependencies(site, stream, nodes, nullptr, count, flags);
}

SIMCUDA_STREAM_API(cuStreamUpdateCaptureDependencies_v2, _ptsz,
                   (CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* edges, std::size_t count,
                    unsigned flags),
                   (stream, nodes, edges, count, flags)) {
    return update_dependencies(site, stream, nodes, edges, count, flags);
}

SIMCUDA_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    return call(Entry::cuThreadExchangeStreamCaptureMode, [&] {
        require(mode != nullptr, CUDA_ERROR_INVALID_VALUE);
        check_mode(*mode);
        *mode = exchange_capture_mode(*mode);
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

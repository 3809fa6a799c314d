#include "tools/simcuda/driver/graph/capture.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/graph/graph_capture.h"
#include "tools/simcuda/driver/graph/graph_params.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

// Captures in progress. Guarded by capture_mutex(); the count beside it makes the common question cheap.
std::vector<std::shared_ptr<GraphCapture>>& captures() {
    static auto& all = *new std::vector<std::shared_ptr<GraphCapture>>;
    return all;
}
std::atomic<std::size_t> g_captures{0};

thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> next{1};
    return next++;
}

// capture_mutex() is held.
std::shared_ptr<GraphCapture> find(const Stream& stream) {
    for (const auto& capture : captures()) {
        for (const auto& [member, position] : capture->streams) {
            if (member.get() == &stream) return capture;
        }
    }
    return nullptr;
}

// capture_mutex() is held.
bool in_progress(const std::shared_ptr<GraphCapture>& capture) {
    return std::find(captures().begin(), captures().end(), capture) != captures().end();
}

[[noreturn]] void invalidate(GraphCapture& capture, CUresult error) {
    capture.invalidated = true;
    throw Failure{error};
}

void add_once(GraphCapture::Position& to, const std::vector<CUgraphNode>& nodes) {
    for (CUgraphNode node : nodes) {
        if (std::find(to.nodes.begin(), to.nodes.end(), node) != to.nodes.end()) continue;
        to.nodes.push_back(node);
        to.edges.push_back({});
    }
}

// The next kernel may begin before the one it comes behind has ended, if that is all that it comes behind.
void begin_early(GraphCapture::Position& at) {
    if (at.nodes.size() != 1 || at.edges.front().type != CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) return;
    if (!std::holds_alternative<KernelNode>(checked_node(at.nodes.front())->work)) return;
    at.edges.front().type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    at.edges.front().from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
}

// Every node that must have run when those of the position have.
void collect(const Node& node, std::set<const Node*>& into) {
    if (!into.insert(&node).second) return;
    for (const Edge& edge : node.dependencies) collect(*edge.from, into);
}

// Each of the other streams must have been waited for by the origin, directly or through others.
bool joined(GraphCapture& capture) {
    std::set<const Node*> behind;
    for (CUgraphNode node : capture.position(capture.origin).nodes) collect(*checked_node(node), behind);
    for (CUgraphNode node : capture.dropped) collect(*checked_node(node), behind);
    for (const auto& [stream, position] : capture.streams) {
        for (CUgraphNode node : position.nodes) {
            if (!behind.contains(checked_node(node).get())) return false;
        }
    }
    return true;
}

// Its streams run again what they are given. capture_mutex() is held.
void leave(const std::shared_ptr<GraphCapture>& capture) {
    for (const auto& [member, position] : capture->streams) member->capture = nullptr;
    std::erase(captures(), capture);
    --g_captures;
}

void drop_graph(const GraphCapture& capture) {
    if (capture.owns_graph) release_graph(capture.graph->handle());
}

template <class Condition>
void forget_if(Condition of_origin) {
    if (g_captures == 0) return;
    std::lock_guard lock(capture_mutex());
    for (const auto& capture : std::vector(captures())) {
        if (!of_origin(capture->origin)) continue;
        leave(capture);
        drop_graph(*capture);
    }
}

// Captures with a blocking stream of the context. capture_mutex() is held.
std::vector<GraphCapture*> blocking_captures(const Context& context) {
    std::vector<GraphCapture*> found;
    for (const auto& capture : captures()) {
        const bool blocking = std::any_of(
            capture->streams.begin(), capture->streams.end(),
            [&](const auto& entry) { return &entry.first->context == &context && entry.first->blocking(); });
        if (blocking) found.push_back(capture.get());
    }
    return found;
}

}  // namespace

std::mutex& capture_mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
}

GraphCapture::GraphCapture(Stream& first, CUstreamCaptureMode capture_mode,
                           const std::shared_ptr<Graph>& into)
    : graph(into ? into : create_graph()),
      owns_graph(!into),
      mode(capture_mode),
      thread(std::this_thread::get_id()),
      id(next_id()),
      origin(first) {}

GraphCapture::Position& GraphCapture::position(Stream& stream) {
    return streams[stream.shared_from_this()];
}

void GraphCapture::require_valid() const {
    require(!invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

void GraphCapture::record(Stream& stream, Op op) {
    std::lock_guard lock(capture_mutex());
    require_valid();
    if (std::holds_alternative<MarkerOp>(op)) return;  // of no consequence for a graph
    try {
        append(stream, captured_work(std::move(op)));
    } catch (const Failure& failure) {
        invalidate(*this, failure.code);
    }
}

void GraphCapture::record_graph(Stream& stream, ChildNode child) {
    std::lock_guard lock(capture_mutex());
    require_valid();
    append(stream, std::move(child));
}

void GraphCapture::append(Stream& stream, NodeWork work) {
    Position& at = position(stream);
    if (const auto* kernel = std::get_if<KernelNode>(&work); kernel != nullptr && kernel->op.programmatic)
        begin_early(at);
    Node& node = graph->add(std::move(work), at.nodes, at.edges.data());
    at = {{node.handle()}, {CUgraphEdgeData{}}};
}

void GraphCapture::record_event(Stream& stream, Event& event) {
    std::lock_guard lock(capture_mutex());
    require_valid();
    auto captured = std::make_shared<CapturedEvent>();
    captured->capture = weak_from_this();
    captured->nodes = position(stream).nodes;
    std::lock_guard event_lock(event.mutex);
    event.record.reset();
    event.captured = std::move(captured);
}

std::shared_ptr<GraphCapture> capture_of(Stream& stream) {
    if (!stream.capture) return nullptr;
    std::lock_guard lock(capture_mutex());
    return find(stream);
}

void begin_capture(Stream& stream, CUstreamCaptureMode mode, const std::shared_ptr<Graph>& graph,
                   GraphCapture::Position position) {
    require(stream.kind != Stream::Kind::Legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    std::lock_guard lock(capture_mutex());
    require(!stream.capture, CUDA_ERROR_ILLEGAL_STATE);
    auto capture = std::make_shared<GraphCapture>(stream, mode, graph);
    capture->position(stream) = std::move(position);
    captures().push_back(capture);
    ++g_captures;
    stream.capture = capture.get();
}

CUgraph end_capture(Stream& stream) {
    std::lock_guard lock(capture_mutex());
    auto capture = find(stream);
    require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    if (&capture->origin != &stream) invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    const bool own =
        capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == std::this_thread::get_id();
    if (!own) throw Failure{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD};
    const bool complete = !capture->invalidated && joined(*capture);
    leave(capture);
    if (complete) return capture->graph->handle();
    drop_graph(*capture);
    capture->require_valid();
    throw Failure{CUDA_ERROR_STREAM_CAPTURE_UNJOINED};
}

CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) {
    return std::exchange(t_mode, mode);
}

bool capture_wait_event(Stream& stream, Event& event) {
    if (g_captures == 0) return false;
    std::lock_guard lock(capture_mutex());
    std::shared_ptr<CapturedEvent> captured;
    bool recorded = false;
    {
        std::lock_guard event_lock(event.mutex);
        captured = event.captured;
        recorded = event.record != nullptr;
    }
    const auto of_stream = find(stream);
    const auto of_event = captured ? captured->capture.lock() : nullptr;
    if (!captured) {
        if (!of_stream) return false;
        of_stream->require_valid();
        if (recorded) invalidate(*of_stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        return true;  // an event that was never recorded is no dependency
    }
    if (!of_event || !in_progress(of_event)) {
        if (of_stream) invalidate(*of_stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        throw Failure{CUDA_ERROR_CAPTURED_EVENT};
    }
    of_event->require_valid();
    if (!of_stream) {
        if (stream.kind == Stream::Kind::Legacy) invalidate(*of_event, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        stream.capture = of_event.get();
        of_event->position(stream) = {};
    } else if (of_stream != of_event) {
        of_stream->invalidated = true;
        invalidate(*of_event, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    add_once(of_event->position(stream), captured->nodes);
    return true;
}

CUresult capture_check_unsafe_call() {
    if (g_captures == 0 || t_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    std::lock_guard lock(capture_mutex());
    CUresult result = CUDA_SUCCESS;
    for (const auto& capture : captures()) {
        const bool own = capture->thread == std::this_thread::get_id();
        const bool prohibited =
            own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && t_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!prohibited) continue;
        capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult capture_check_legacy_stream(Context& context) {
    if (g_captures == 0) return CUDA_SUCCESS;
    std::lock_guard lock(capture_mutex());
    const auto concerned = blocking_captures(context);
    for (GraphCapture* capture : concerned) capture->invalidated = true;
    return concerned.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

bool legacy_stream_is_barred(const Context& context) {
    if (g_captures == 0) return false;
    std::lock_guard lock(capture_mutex());
    return !blocking_captures(context).empty();
}

void capture_forget(const Stream& stream) {
    forget_if([&](const Stream& origin) { return &origin == &stream; });
}

void capture_forget(const Context& context) {
    forget_if([&](const Stream& origin) { return &origin.context == &context; });
}

CUresult capture_check_query(Stream& stream) {
    if (g_captures == 0) return CUDA_SUCCESS;
    if (stream.kind == Stream::Kind::Legacy) return capture_check_legacy_stream(stream.context);
    std::lock_guard lock(capture_mutex());
    const auto capture = find(stream);
    if (!capture) return CUDA_SUCCESS;
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_check_query(Event& event) {
    std::shared_ptr<CapturedEvent> captured;
    {
        std::lock_guard lock(event.mutex);
        captured = event.captured;
    }
    if (!captured) return capture_check_unsafe_call();
    std::lock_guard lock(capture_mutex());
    if (const auto capture = captured->capture.lock(); capture && in_progress(capture))
        capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_check_wait(const Context& context) {
    if (g_captures == 0) return CUDA_SUCCESS;
    std::lock_guard lock(capture_mutex());
    CUresult result = CUDA_SUCCESS;
    for (const auto& capture : captures()) {
        const bool here = std::any_of(
            capture->streams.begin(), capture->streams.end(),
            [&](const auto& entry) { return &entry.first->context.device() == &context.device(); });
        if (!here) continue;
        capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

}  // namespace simcuda::driver

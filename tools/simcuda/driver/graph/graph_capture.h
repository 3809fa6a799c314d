// A stream capture in progress: operations given to its streams become nodes of a graph.
//
// LOCKING: capture_mutex() guards all captures; it is taken before any other lock of the driver but none of
// the functions here are called with the scheduler's mutex held.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/simcuda/driver/graph/capture.h"
#include "tools/simcuda/driver/graph/graph.h"

namespace simcuda::driver {

class GraphCapture;

// Where in which capture an event was recorded.
struct CapturedEvent {
    std::weak_ptr<GraphCapture> capture;
    std::vector<CUgraphNode> nodes;
};

class GraphCapture final : public Capture, public std::enable_shared_from_this<GraphCapture> {
  public:
    // Into `graph`, or null: into a graph of its own.
    GraphCapture(Stream& origin, CUstreamCaptureMode mode, const std::shared_ptr<Graph>& graph);

    void record(Stream& stream, Op op) override;
    void record_graph(Stream& stream, ChildNode child);  // a launch of an executable graph
    void record_event(Stream& stream, Event& event) override;

    // What the next operation of the stream will depend on.
    struct Position {
        std::vector<CUgraphNode> nodes;
        std::vector<CUgraphEdgeData> edges;
    };

    const std::shared_ptr<Graph> graph;
    const bool owns_graph;  // which goes with a capture that fails
    const CUstreamCaptureMode mode;
    const std::thread::id thread;  // that began it
    const std::uint64_t id;
    Stream& origin;

    // Guarded by capture_mutex().
    bool invalidated = false;
    std::map<std::shared_ptr<Stream>, Position> streams;  // that take part
    std::vector<CUgraphNode> dropped;  // that the program took out of a position: they need not be joined

    Position& position(Stream& stream);
    void append(Stream& stream, NodeWork work);

    // Throws Failure with CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.
    void require_valid() const;
};

std::mutex& capture_mutex();

// The stream's capture, or null.
std::shared_ptr<GraphCapture> capture_of(Stream& stream);

// cuStreamBeginCapture (`graph` null) and cuStreamBeginCaptureToGraph; cuStreamEndCapture, which returns the
// graph. Throw Failure with the error codes of those.
void begin_capture(Stream& stream, CUstreamCaptureMode mode, const std::shared_ptr<Graph>& graph = nullptr,
                   GraphCapture::Position position = {});
CUgraph end_capture(Stream& stream);

// The calling thread's answer to "which unsafe calls are prohibited". Returns the one before.
CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode);

}  // namespace simcuda::driver

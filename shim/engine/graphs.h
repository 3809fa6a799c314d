// Graphs: what their nodes reach is read when they are instantiated or updated, and brought in when they are
// launched.
#pragma once

#include <vector>

#include "shim/engine/submit.h"
#include "shim/engine/tables.h"

namespace lms::engine {

// Thread-safe. Kernel nodes may use memory in place like any launch. The operands of memcpy and memset nodes
// have their mappings recorded by the driver, so they are kept on the device for as long as the executable
// graph lives.

// A copy to device memory among a graph's nodes.
struct GraphCopy {
    Box to;
    Box from;
    CUmemorytype from_type;
};

// What a graph's nodes reach and copy.
struct GraphContents {
    Reach kernels;
    std::vector<GraphCopy> copies;
};

// Before the driver instantiates or updates from `graph`: what it reaches, its operands brought in and kept.
// Nothing where no memory is managed; `status` is what the app is to get if keeping failed.
class GraphHold {
  public:
    explicit GraphHold(CUgraph graph);
    ~GraphHold();  // lets go, unless an executable graph took over
    GraphHold(const GraphHold&) = delete;
    GraphHold& operator=(const GraphHold&) = delete;
    CUresult status() const { return status_; }
    // The driver has made or updated `exec`, which reaches this from now on, beside what it reached before.
    void give_to(CUgraphExec exec);

  private:
    GraphContents contents_;
    std::vector<KeptIn> kept_;
    CUresult status_ = CUDA_SUCCESS;
};

// A kernel node of `exec` is about to get these parameters.
void add_kernel_node(CUgraphExec exec, CUfunction function, void** parameters, void** extra);

void graph_destroyed(CUgraphExec exec);

// `exec` is about to be launched: its copies may write pointer tables.
void note_graph_copies(CUgraphExec exec);

// What launching `exec` reaches.
Reach reach_of(CUgraphExec exec, CUstream stream);

}  // namespace lms::engine

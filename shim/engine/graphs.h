// Executable graphs: what their nodes reach is read when they are instantiated or updated, and brought in
// when they are launched.
#pragma once

#include <vector>

#include "shim/engine/graph_contents.h"

namespace lms::engine {

// Thread-safe. Kernel nodes may use memory in place like any launch. Of all other nodes the driver records
// how their operands are mapped, so those are kept on the device for as long as the executable graph has
// them.

// Before the driver makes an executable graph, or changes one: the operands of `contents` brought in and
// kept. `status` is what the app is to get if that failed.
class GraphHold {
  public:
    explicit GraphHold(GraphContents contents);
    ~GraphHold();  // lets go, unless an executable graph took over
    GraphHold(const GraphHold&) = delete;
    GraphHold& operator=(const GraphHold&) = delete;
    CUresult status() const { return status_; }
    // The driver has made or updated all of `exec`: this is what it has from now on.
    void give_to(CUgraphExec exec);
    // The driver has changed one node of it, which has this from now on, beside what it was made with.
    void give_to(CUgraphExec exec, CUgraphNode node);

  private:
    GraphContents contents_;
    std::vector<KeptIn> kept_;
    CUresult status_ = CUDA_SUCCESS;
};

void graph_destroyed(CUgraphExec exec);

// A node of `exec` was switched off: the host memory that a copy of it would read may be gone.
void node_disabled(CUgraphExec exec);

// `exec` is about to be launched: its copies may write pointer tables.
void note_graph_copies(CUgraphExec exec);

// What launching `exec` reaches.
Reach reach_of(CUgraphExec exec, CUstream stream);

}  // namespace lms::engine

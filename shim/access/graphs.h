// Executable graphs: what their nodes reach is read when they are instantiated or updated, and brought in
// when they are launched.
#pragma once

#include <memory>

#include "shim/access/graph_contents.h"

namespace lms::access {

// Thread-safe; an executable graph is used by one thread at a time, as in CUDA. Kernel nodes may use memory
// in place like any launch. Of all other nodes the driver records how their operands are mapped, so those are
// kept on the device for as long as the executable graph has them.
//
// What an executable graph does is known node by node, by the handles of the graph it was made of, which is
// how the driver tells them apart too: a node that is changed has what it was changed to and nothing else,
// and one that is switched off has nothing.

// Before the driver makes an executable graph, or changes one: the operands of `part` brought in and kept.
// `status` is what the program is to get if that failed.
class GraphHold {
  public:
    explicit GraphHold(GraphPart part);
    // Lets go, unless an executable graph took over, and then of what that had before.
    ~GraphHold();
    GraphHold(const GraphHold&) = delete;
    GraphHold& operator=(const GraphHold&) = delete;
    CUresult status() const { return status_; }

    // The driver has made `exec`: this is what it has. Where kernels may launch it (`from_device`), launching
    // any graph may reach anything from here on.
    void give_to(CUgraphExec exec, bool from_device);
    // The driver has updated all of it from another graph, or one node of it: this is what it has now.
    void update(CUgraphExec exec);
    void change(CUgraphExec exec, CUgraphNode node);

  private:
    GraphPart part_;
    CUresult status_ = CUDA_SUCCESS;
};

// `exec` is about to be destroyed: after the driver's call another may have its handle.
class GraphEnd {
  public:
    explicit GraphEnd(CUgraphExec exec);
    // Lets go of what it had.
    ~GraphEnd();
    GraphEnd(const GraphEnd&) = delete;
    GraphEnd& operator=(const GraphEnd&) = delete;
    // The driver did not destroy it.
    void refused();

  private:
    struct Known;

    CUgraphExec exec_;
    std::unique_ptr<Known> known_;
};

// A node of `exec` was switched on or off: the host memory that a copy which is off would read may be gone.
void node_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);

// A call that the shim does not know may have changed any executable graph:
// until one is updated as a whole, launching it may reach anything.
void note_unseen_call();

// `exec` is about to be launched: its copies may write pointer tables.
void note_graph_copies(CUgraphExec exec);

// The nodes of `exec`, which is about to be launched into `stream`, to be launched there one by one instead.
// Null: that cannot be, or an earlier launch of it may be unfinished that they would not run behind. `as_one`
// is what becomes of it otherwise.
std::shared_ptr<const GraphSteps> steps_of(CUgraphExec exec, CUstream stream, session::AsOne as_one);
// `exec` is about to be launched into `stream`: whatever comes runs behind its nodes that were launched one
// by one, for which the driver does not wait by itself.
CUresult await_steps(CUgraphExec exec, CUstream stream);
// It was launched whole, or its nodes were.
void note_whole(CUgraphExec exec, CUstream stream);
void note_steps(CUgraphExec exec, CUstream stream);

// The context is gone, and what it had.
void steps_end_with(CUcontext context);
// A graph was given a user object: no graph's nodes are launched one by one from here on.
void user_objects_used();

// What launching `exec` reaches.
session::WorkingSet reach_of(CUgraphExec exec, CUstream stream);

}  // namespace lms::access

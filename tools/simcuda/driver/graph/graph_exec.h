// Executable graphs: what a CUgraphExec points to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tools/simcuda/driver/graph/graph.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {

// One step of an executable graph. Child graphs are laid out between two markers.
struct ExecNode {
    CUgraphNode source;  // the node it was made of; only compared, it may be gone
    CUgraphNodeType type;
    Op op;
    std::vector<std::size_t> after;
    std::vector<std::size_t> early = {};  // of these: GraphNode::early
    bool enabled = true;
    std::shared_ptr<const bool> removed;  // the source, from its graph; null: there is none
    std::shared_ptr<Event> record;        // event record nodes
    std::shared_ptr<Event> wait;          // event wait nodes

    // Copies and fills work on the memory that was mapped at their operands when they were instantiated or
    // updated; it must still be there at launch.
    struct Operand {
        std::uint64_t address;
        std::uint64_t bytes;
        std::vector<const void*> memory;  // identities, in order
        bool operator==(const Operand&) const = default;
    };
    std::vector<Operand> operands;
    std::size_t end = 0;  // child graph: index behind its closing marker

    std::shared_ptr<GraphMemory> allocates, frees;

    // Conditional nodes: what decides, and the graphs to choose from.
    std::shared_ptr<Conditional> conditional;
    CUgraphConditionalNodeType branch = CU_GRAPH_COND_TYPE_IF;
    std::vector<std::vector<ExecNode>> bodies;
};

// Used by one thread at a time, as in CUDA.
class GraphExec {
  public:
    // Takes device memory for each node. Throws Failure: CUDA_ERROR_OUT_OF_MEMORY, or what a node's operands
    // are refused with; `failed` (may be null) is given that node.
    GraphExec(std::shared_ptr<Context> context, const Graph& graph, std::uint64_t flags, CUgraphNode* failed);
    ~GraphExec();
    GraphExec(const GraphExec&) = delete;
    GraphExec& operator=(const GraphExec&) = delete;

    CUgraphExec handle() { return reinterpret_cast<CUgraphExec>(this); }
    std::uint64_t flags() const { return flags_; }

    // Behind the stream's work and the last launch of this graph. Throws Failure with
    // CUDA_ERROR_INVALID_VALUE if memory that a copy or fill works on was mapped anew since, if an allocation
    // of an earlier launch was not freed, or one to free is not there; with CUDA_ERROR_OUT_OF_MEMORY for its
    // allocations.
    void launch(Stream& stream);

    // What it does now, for a graph to hold; what its own child graphs do is laid out beside the rest. Throws
    // Failure with CUDA_ERROR_NOT_SUPPORTED for graphs that allocate, branch or wait for values.
    ChildNode as_child() const;

    // Throws Failure with CUDA_ERROR_INVALID_VALUE for a node the graph was not made of, or that was removed
    // from it since.
    ExecNode& node(CUgraphNode source);

    // Gives the node other work of the same type. Throws Failure with CUDA_ERROR_INVALID_VALUE, also where
    // the operands of a copy were mapped anew.
    void set(ExecNode& node, const NodeWork& work);
    void set_child(ExecNode& node, const Graph& graph);

    // Takes over the parameters of a graph of the same shape; else changes nothing and says why. Throws
    // Failure with CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE.
    void update(const Graph& graph, CUgraphExecUpdateResultInfo& info);

  private:
    void check_memory() const;
    std::vector<std::shared_ptr<GraphMemory>> begin_uses(const Stream& stream);
    void hand_over_memory(const Stream& stream);
    std::vector<ExecNode> lay_out(const Graph& graph, CUgraphNode* failed) const;
    void lay_out(const Graph& graph, std::vector<std::size_t> after, std::vector<ExecNode>& into,
                 CUgraphNode* failed) const;

    const std::shared_ptr<Context> context_;
    const std::uint64_t flags_;
    std::vector<ExecNode> nodes_;
    std::uint64_t charged_ = 0;
    WorkPtr last_;  // the end of the latest launch
    std::map<std::shared_ptr<UserObject>, unsigned> user_objects_;
};

std::shared_ptr<GraphExec> instantiate(const std::shared_ptr<Context>& context, const Graph& graph,
                                       std::uint64_t flags, CUgraphNode* failed);

// Throw Failure with CUDA_ERROR_INVALID_VALUE for anything that is not live.
std::shared_ptr<GraphExec> checked_exec(CUgraphExec handle);
void destroy_exec(CUgraphExec handle);  // a launch that is on its way goes on

}  // namespace simcuda::driver

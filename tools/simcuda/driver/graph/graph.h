// Graphs: what a CUgraph and a CUgraphNode point to. A graph describes work; graph_exec.h makes it run.
//
// As in CUDA, a graph is used by one thread at a time; only the handles are looked up thread-safely.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class Conditional;
class Context;
class Graph;
class GraphExec;
class GraphMemory;
struct Event;
class UserObject;

// What the nodes of each type hold. A memcpy node keeps the description it was given: what lies at its
// addresses is looked up when the graph is instantiated or updated.
struct EmptyNode {};
struct KernelNode {
    CUfunction function = nullptr;
    CUkernel kernel = nullptr;  // where it was named by a CUkernel
    KernelOp op;
    std::map<CUkernelNodeAttrID, CUkernelNodeAttrValue> attributes = {};
    std::vector<void*> parameters = {};  // for queries: pointers into op
};
struct MemcpyNode {
    CUDA_MEMCPY3D copy;
};
struct MemsetNode {
    MemsetOp op;
};
struct HostNode {
    CUhostFn function;
    void* data;
};
struct ChildNode {
    std::shared_ptr<Graph> graph;
};
struct EventRecordNode {
    std::shared_ptr<Event> event;
};
struct EventWaitNode {
    std::shared_ptr<Event> event;
};
struct MemAllocNode {
    std::shared_ptr<GraphMemory> memory;
    CUmemPoolProps properties;
    std::vector<CUmemAccessDesc> access = {};
};
struct MemFreeNode {
    std::shared_ptr<GraphMemory> memory;
};
struct ConditionalNode {
    std::shared_ptr<Conditional> conditional;
    CUgraphConditionalNodeType type;
    std::vector<std::shared_ptr<Graph>> bodies;
    std::vector<CUgraph> handles;  // of the bodies, as the program sees them
};
struct BatchMemOpNode {
    std::vector<CUstreamBatchMemOpParams> items;
    std::vector<Op> ops;
};
using NodeWork =
    std::variant<EmptyNode, KernelNode, MemcpyNode, MemsetNode, HostNode, ChildNode, EventRecordNode,
                 EventWaitNode, MemAllocNode, MemFreeNode, ConditionalNode, BatchMemOpNode>;

CUgraphNodeType type_of(const NodeWork& work);
bool can_be_set(CUgraphNodeType type);  // its parameters, once there is a node

struct Node;
struct Edge {
    Node* from;
    CUgraphEdgeData data;
};

struct Node {
    Graph* graph = nullptr;
    NodeWork work;
    std::vector<Edge> dependencies;
    Node* original = nullptr;                                       // in the graph this one was cloned from
    std::shared_ptr<bool> removed = std::make_shared<bool>(false);  // for executable graphs to see

    CUgraphNode handle() { return reinterpret_cast<CUgraphNode>(this); }

    // Throws Failure with CUDA_ERROR_INVALID_VALUE if the node is of another type.
    template <class Work>
    Work& as();
};

class Graph {
  public:
    Graph() = default;
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    CUgraph handle() { return reinterpret_cast<CUgraph>(this); }

    // In the order they were added, which may be no order they can run in.
    const std::vector<std::shared_ptr<Node>>& nodes() const { return nodes_; }

    // Every node after all it depends on; among those that are free to run, in the order they were added.
    // Without those of a circle and what depends on them.
    std::vector<Node*> in_order() const;
    bool has_circle() const;  // at any depth

    // It, or a child, allocates, frees or branches: then nothing can be taken out, it cannot be cloned, and
    // at most one executable graph of it exists.
    bool restricted() const;
    bool has_conditional() const;  // at any depth

    // `edges` may be null: plain dependencies. Throw Failure with CUDA_ERROR_INVALID_VALUE: nodes of other
    // graphs, a node that depends on itself, dependencies twice over or none to remove, what the nodes' own
    // rules forbid; with CUDA_ERROR_NOT_SUPPORTED for what restricted() does. Other circles can be built, but
    // not instantiated.
    Node& add(NodeWork work, std::span<const CUgraphNode> dependencies,
              const CUgraphEdgeData* edges = nullptr);
    void add_dependency(Node& from, Node& to, const CUgraphEdgeData& data);
    void remove_dependency(Node& from, Node& to);
    void remove(Node& node);

    std::vector<Node*> dependents(const Node& node) const;

    std::shared_ptr<Graph> clone() const;
    Node* find_clone_of(const Node& original) const;  // null

    // What it is a child or a body of; null if it is nobody's.
    Graph* parent = nullptr;
    bool moved = false;  // into its parent: takes no more allocations and frees

    std::vector<std::shared_ptr<Conditional>> conditionals;  // handles made for it
    mutable std::weak_ptr<GraphExec> instance;               // the latest

    // References to user objects the graph holds.
    std::map<std::shared_ptr<UserObject>, unsigned> user_objects;

  private:
    void adopt(Node& node);

    std::vector<std::shared_ptr<Node>> nodes_;
};

// Throw Failure with CUDA_ERROR_INVALID_VALUE for anything that is not live.
std::shared_ptr<Graph> create_graph();                     // and register it
void register_graph(const std::shared_ptr<Graph>& graph);  // makes its handle valid
std::shared_ptr<Graph> checked_graph(CUgraph handle);
std::shared_ptr<Graph> release_graph(CUgraph handle);  // the handle ends
std::shared_ptr<Node> checked_node(CUgraphNode handle);

// A copy of the graph for a node to hold; its handle is valid while the node lives. Or the graph itself.
// Throw Failure with CUDA_ERROR_INVALID_VALUE.
ChildNode as_child(const Graph& graph);
ChildNode as_moved_child(const std::shared_ptr<Graph>& graph);

[[noreturn]] void fail_node_type();

template <class Work>
Work& Node::as() {
    Work* found = std::get_if<Work>(&work);
    if (!found) fail_node_type();
    return *found;
}

}  // namespace simcuda::driver

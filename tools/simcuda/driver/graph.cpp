#include "tools/simcuda/driver/graph.h"

#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/user_object.h"

namespace simcuda::driver {
namespace {

Handles<Graph>& graphs() {
    static auto& handles = *new Handles<Graph>;
    return handles;
}

Handles<Node>& node_handles() {
    static auto& handles = *new Handles<Node>;
    return handles;
}

constexpr CUgraphNodeType kTypes[] = {
    // in the order of NodeWork's alternatives
    CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_KERNEL,    CU_GRAPH_NODE_TYPE_MEMCPY,
    CU_GRAPH_NODE_TYPE_MEMSET,       CU_GRAPH_NODE_TYPE_HOST,      CU_GRAPH_NODE_TYPE_GRAPH,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT};
static_assert(std::size(kTypes) == std::variant_size_v<NodeWork>);

// The node's handle ends, and that of a graph it holds.
void release_handles(Node& node) {
    node_handles().remove(&node);
    if (auto* child = std::get_if<ChildNode>(&node.work)) graphs().remove(child->graph.get());
}

bool depends(const Node& to, const Node& from) {
    return std::any_of(to.dependencies.begin(), to.dependencies.end(),
                       [&](const Edge& edge) { return edge.from == &from; });
}

}  // namespace

CUgraphNodeType type_of(const NodeWork& work) {
    return kTypes[work.index()];
}

void fail_node_type() {
    throw Failure{CUDA_ERROR_INVALID_VALUE};
}

Graph::~Graph() {
    for (const auto& node : nodes_) release_handles(*node);
    for (const auto& [object, references] : user_objects) object->release(references);
}

std::size_t Graph::edge_count() const {
    std::size_t count = 0;
    for (const auto& node : nodes_) count += node->dependencies.size();
    return count;
}

std::vector<Node*> Graph::in_order() const {
    std::map<const Node*, std::size_t> missing;
    for (const auto& node : nodes_) missing[node.get()] = node->dependencies.size();
    std::vector<Node*> order;
    std::vector<bool> taken(nodes_.size());
    while (order.size() < nodes_.size()) {
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            if (taken[i] || missing[nodes_[i].get()] != 0) continue;
            taken[i] = true;
            order.push_back(nodes_[i].get());
            for (Node* dependent : dependents(*nodes_[i])) --missing[dependent];
        }
    }
    return order;
}

Node& Graph::add(NodeWork work, std::span<const CUgraphNode> dependencies, const CUgraphEdgeData* edges) {
    auto node = std::make_shared<Node>();
    node->graph = this;
    node->work = std::move(work);
    for (std::size_t i = 0; i < dependencies.size(); ++i) {
        auto from = checked_node(dependencies[i]);
        require(from->graph == this && !depends(*node, *from), CUDA_ERROR_INVALID_VALUE);
        node->dependencies.push_back({from.get(), edges ? edges[i] : CUgraphEdgeData{}});
    }
    node_handles().add(node);
    nodes_.push_back(node);
    return *node;
}

void Graph::add_dependency(Node& from, Node& to, const CUgraphEdgeData& data) {
    require(from.graph == this && to.graph == this, CUDA_ERROR_INVALID_VALUE);
    require(!depends(to, from) && !reaches(to, from), CUDA_ERROR_INVALID_VALUE);
    to.dependencies.push_back({&from, data});
}

void Graph::remove_dependency(Node& from, Node& to) {
    require(from.graph == this && to.graph == this && depends(to, from), CUDA_ERROR_INVALID_VALUE);
    std::erase_if(to.dependencies, [&](const Edge& edge) { return edge.from == &from; });
}

void Graph::remove(Node& node) {
    for (const auto& other : nodes_) {
        std::erase_if(other->dependencies, [&](const Edge& edge) { return edge.from == &node; });
    }
    release_handles(node);
    std::erase_if(nodes_, [&](const auto& candidate) { return candidate.get() == &node; });
}

std::vector<Node*> Graph::dependents(const Node& node) const {
    std::vector<Node*> found;
    for (const auto& other : nodes_) {
        if (depends(*other, node)) found.push_back(other.get());
    }
    return found;
}

bool Graph::reaches(const Node& from, const Node& to) const {
    if (&from == &to) return true;
    return std::any_of(to.dependencies.begin(), to.dependencies.end(),
                       [&](const Edge& edge) { return reaches(from, *edge.from); });
}

std::shared_ptr<Graph> Graph::clone() const {
    auto copy = std::make_shared<Graph>();
    std::map<const Node*, Node*> twins;
    for (Node* node : in_order()) {
        NodeWork work = node->work;
        if (auto* child = std::get_if<ChildNode>(&work)) *child = as_child(*child->graph);
        Node& twin = copy->add(std::move(work), {});
        twin.original = node;
        for (const Edge& edge : node->dependencies)
            twin.dependencies.push_back({twins.at(edge.from), edge.data});
        twins[node] = &twin;
    }
    copy->user_objects = user_objects;
    for (const auto& [object, references] : user_objects) object->retain(references);
    return copy;
}

Node* Graph::find_clone_of(const Node& original) const {
    for (const auto& node : nodes_) {
        if (node->original == &original) return node.get();
    }
    return nullptr;
}

ChildNode as_child(const Graph& graph) {
    ChildNode child{graph.clone()};
    register_graph(child.graph);
    return child;
}

std::shared_ptr<Graph> create_graph() {
    auto graph = std::make_shared<Graph>();
    register_graph(graph);
    return graph;
}

void register_graph(const std::shared_ptr<Graph>& graph) {
    graphs().add(graph);
}

std::shared_ptr<Graph> checked_graph(CUgraph handle) {
    auto graph = graphs().find(handle);
    require(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
    return graph;
}

std::shared_ptr<Graph> release_graph(CUgraph handle) {
    auto graph = graphs().remove(handle);
    require(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
    return graph;
}

std::shared_ptr<Node> checked_node(CUgraphNode handle) {
    auto node = node_handles().find(handle);
    require(node != nullptr, CUDA_ERROR_INVALID_VALUE);
    return node;
}

}  // namespace simcuda::driver

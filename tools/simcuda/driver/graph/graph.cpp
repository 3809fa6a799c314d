#include "tools/simcuda/driver/graph/graph.h"

#include <algorithm>
#include <set>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/graph/conditional.h"
#include "tools/simcuda/driver/graph/graph_memory.h"
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
    CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_KERNEL,      CU_GRAPH_NODE_TYPE_MEMCPY,
    CU_GRAPH_NODE_TYPE_MEMSET,       CU_GRAPH_NODE_TYPE_HOST,        CU_GRAPH_NODE_TYPE_GRAPH,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,  CU_GRAPH_NODE_TYPE_MEM_ALLOC,
    CU_GRAPH_NODE_TYPE_MEM_FREE,     CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
static_assert(std::size(kTypes) == std::variant_size_v<NodeWork>);

// The graphs the node holds.
std::vector<std::shared_ptr<Graph>> inner_graphs(const Node& node) {
    if (const auto* child = std::get_if<ChildNode>(&node.work)) return {child->graph};
    if (const auto* conditional = std::get_if<ConditionalNode>(&node.work)) return conditional->bodies;
    return {};
}

// The node's handle ends, and those of graphs it holds.
void release_handles(Node& node) {
    node_handles().remove(&node);
    for (const auto& inner : inner_graphs(node)) graphs().remove(inner.get());
    if (auto* free = std::get_if<MemFreeNode>(&node.work)) free->memory->forget_graph(*node.graph);
}

// Only kernels have ends before their end, and only kernels wait for what came before these.
void check_edge(const Node& from, const Node& to, const CUgraphEdgeData& data) {
    const bool from_kernel = std::holds_alternative<KernelNode>(from.work);
    const bool to_kernel = std::holds_alternative<KernelNode>(to.work);
    const bool programmatic = data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    require(programmatic || data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT, CUDA_ERROR_INVALID_VALUE);
    require(data.to_port == 0 && data.from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER,
            CUDA_ERROR_INVALID_VALUE);
    if (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT)
        return require(!programmatic, CUDA_ERROR_INVALID_VALUE);
    require(from_kernel && (!programmatic || to_kernel), CUDA_ERROR_INVALID_VALUE);
    require(programmatic || data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER,
            CUDA_ERROR_INVALID_VALUE);
}

bool depends(const Node& to, const Node& from) {
    return std::any_of(to.dependencies.begin(), to.dependencies.end(),
                       [&](const Edge& edge) { return edge.from == &from; });
}

}  // namespace

CUgraphNodeType type_of(const NodeWork& work) {
    return kTypes[work.index()];
}

bool can_be_set(CUgraphNodeType type) {
    return type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && type != CU_GRAPH_NODE_TYPE_MEM_FREE &&
           type != CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

void fail_node_type() {
    throw Failure{CUDA_ERROR_INVALID_VALUE};
}

Graph::~Graph() {
    for (const auto& node : nodes_) release_handles(*node);
    for (const auto& [object, references] : user_objects) object->release(references);
}

std::vector<Node*> Graph::in_order() const {
    std::map<const Node*, std::size_t> index;
    for (std::size_t i = 0; i < nodes_.size(); ++i) index[nodes_[i].get()] = i;
    std::vector<std::size_t> missing;
    std::vector<std::vector<std::size_t>> dependents(nodes_.size());
    std::set<std::size_t> ready;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        for (const Edge& edge : nodes_[i]->dependencies) dependents[index.at(edge.from)].push_back(i);
        missing.push_back(nodes_[i]->dependencies.size());
        if (missing[i] == 0) ready.insert(i);
    }
    std::vector<Node*> order;
    for (auto next = ready.begin(); next != ready.end();) {
        const std::size_t at = *next;
        ready.erase(next);
        order.push_back(nodes_[at].get());
        for (const std::size_t dependent : dependents[at])
            if (--missing[dependent] == 0) ready.insert(dependent);
        next = ready.upper_bound(at);
        if (next == ready.end()) next = ready.begin();
    }
    return order;
}

bool Graph::has_circle() const {
    return in_order().size() < nodes_.size() ||
           std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
               const auto inner = inner_graphs(*node);
               return std::any_of(inner.begin(), inner.end(),
                                  [](const auto& graph) { return graph->has_circle(); });
           });
}

bool Graph::restricted() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
        if (std::holds_alternative<MemAllocNode>(node->work) ||
            std::holds_alternative<MemFreeNode>(node->work) ||
            std::holds_alternative<ConditionalNode>(node->work))
            return true;
        const auto* child = std::get_if<ChildNode>(&node->work);
        return child != nullptr && child->graph->restricted();
    });
}

bool Graph::has_conditional() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
        const auto* child = std::get_if<ChildNode>(&node->work);
        return std::holds_alternative<ConditionalNode>(node->work) ||
               (child != nullptr && child->graph->has_conditional());
    });
}

// The rules of nodes that belong to their graph, and what ties them to it.
void Graph::adopt(Node& node) {
    auto* alloc = std::get_if<MemAllocNode>(&node.work);
    auto* free = std::get_if<MemFreeNode>(&node.work);
    require(!moved || (alloc == nullptr && free == nullptr), CUDA_ERROR_INVALID_VALUE);
    if (alloc != nullptr) alloc->memory->owner = this;
    if (free != nullptr) free->memory->add_free_in(*this);
    if (auto* branch = std::get_if<ConditionalNode>(&node.work)) {
        const Graph* holder = this;  // of the handle: this graph, or one it is inside of
        while (holder != nullptr && holder != branch->conditional->graph) holder = holder->parent;
        require(holder != nullptr && !branch->conditional->used, CUDA_ERROR_INVALID_VALUE);
        branch->conditional->used = true;
    }
    for (const auto& inner : inner_graphs(node)) inner->parent = this;
}

Node& Graph::add(NodeWork work, std::span<const CUgraphNode> dependencies, const CUgraphEdgeData* edges) {
    auto node = std::make_shared<Node>();
    node->graph = this;
    node->work = std::move(work);
    for (std::size_t i = 0; i < dependencies.size(); ++i) {
        auto from = checked_node(dependencies[i]);
        require(from->graph == this && !depends(*node, *from), CUDA_ERROR_INVALID_VALUE);
        const CUgraphEdgeData data = edges ? edges[i] : CUgraphEdgeData{};
        check_edge(*from, *node, data);
        node->dependencies.push_back({from.get(), data});
    }
    adopt(*node);
    node_handles().add(node);
    nodes_.push_back(node);
    return *node;
}

void Graph::add_dependency(Node& from, Node& to, const CUgraphEdgeData& data) {
    require(from.graph == this && to.graph == this, CUDA_ERROR_INVALID_VALUE);
    require(!depends(to, from) && &from != &to, CUDA_ERROR_INVALID_VALUE);
    check_edge(from, to, data);
    to.dependencies.push_back({&from, data});
}

void Graph::remove_dependency(Node& from, Node& to) {
    require(from.graph == this && to.graph == this && depends(to, from), CUDA_ERROR_INVALID_VALUE);
    require(!restricted(), CUDA_ERROR_NOT_SUPPORTED);
    std::erase_if(to.dependencies, [&](const Edge& edge) { return edge.from == &from; });
}

void Graph::remove(Node& node) {
    require(!restricted(), CUDA_ERROR_NOT_SUPPORTED);
    *node.removed = true;
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

std::shared_ptr<Graph> Graph::clone() const {
    require(!restricted(), CUDA_ERROR_NOT_SUPPORTED);
    auto copy = std::make_shared<Graph>();
    std::map<const Node*, Node*> twins;
    for (const auto& node : nodes_) {
        NodeWork work = node->work;
        if (auto* child = std::get_if<ChildNode>(&work)) *child = as_child(*child->graph);
        Node& twin = copy->add(std::move(work), {});
        twin.original = node.get();
        twins[node.get()] = &twin;
    }
    for (const auto& node : nodes_) {
        for (const Edge& edge : node->dependencies)
            twins.at(node.get())->dependencies.push_back({twins.at(edge.from), edge.data});
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

ChildNode as_moved_child(const std::shared_ptr<Graph>& graph) {
    require(graph->parent == nullptr && !graph->has_conditional() && graph->instance.expired(),
            CUDA_ERROR_INVALID_VALUE);
    graph->moved = true;
    return {graph};
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
    require(checked_graph(handle)->parent == nullptr, CUDA_ERROR_INVALID_VALUE);
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

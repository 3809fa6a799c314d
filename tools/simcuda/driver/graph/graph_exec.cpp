#include "tools/simcuda/driver/graph/graph_exec.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/graph/conditional.h"
#include "tools/simcuda/driver/graph/graph_change.h"
#include "tools/simcuda/driver/graph/graph_memory.h"
#include "tools/simcuda/driver/graph/graph_params.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/report.h"
#include "tools/simcuda/driver/user_object.h"

namespace simcuda::driver {
namespace {

Handles<GraphExec>& handles() {
    static auto& handles = *new Handles<GraphExec>;
    return handles;
}

using Operand = ExecNode::Operand;

// What is mapped there now. Memory the driver does not know (pageable) has no identity and cannot change.
std::vector<const void*> memory_at(std::uint64_t address, std::uint64_t bytes) {
    std::vector<const void*> found;
    if (const auto memory = graph_memory_at(address, bytes)) return {memory.get()};  // comes and goes
    for (const RegionPtr& region : memory_map().overlapping(address, bytes)) {
        found.push_back(region->physical.get());
    }
    return found;
}

Operand operand(std::uint64_t address, std::uint64_t bytes) {
    return {address, bytes, memory_at(address, bytes)};
}

Operand operand(const CopyEnd& end, const CopyOp& copy) {
    const std::uint64_t rows = (copy.depth - 1) * end.slice_rows + copy.height - 1;
    std::uint64_t address = end.address;
    // Host-located memory with a device address is held by the address the host has for it.
    if (end.place == Place::Pinned && memory_map().find(address) == nullptr) address = other_side(address);
    return operand(address, rows * end.pitch + copy.width);
}

std::vector<Operand> operands_of(const Op& op) {
    if (const auto* copy = std::get_if<CopyOp>(&op)) {
        if (empty(*copy)) return {};
        return {operand(copy->from, *copy), operand(copy->to, *copy)};
    }
    if (const auto* memset = std::get_if<MemsetOp>(&op)) {
        return {operand(memset->address,
                        (memset->height - 1) * memset->pitch + memset->width * memset->element_bytes)};
    }
    return {};
}

void require_unchanged(const ExecNode& node) {
    for (const Operand& operand : node.operands) {
        if (operand.memory == memory_at(operand.address, operand.bytes)) continue;
        violation(
            "the memory a graph's copy or fill works on was mapped anew after the graph was instantiated");
        throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

// Memory that was freed since is no obstacle to a node's being given other.
void require_not_mapped_anew(const ExecNode& node) {
    for (const Operand& operand : node.operands) {
        const auto now = memory_at(operand.address, operand.bytes);
        require(now.empty() || now == operand.memory, CUDA_ERROR_INVALID_VALUE);
    }
}

// Everything of the node but its place in the graph and the bodies.
void fill(ExecNode& node, Context& context, const NodeWork& work) {
    node.op = operation(context, work);
    node.operands = operands_of(node.op);
    if (const auto* record = std::get_if<EventRecordNode>(&work)) node.record = record->event;
    if (const auto* wait = std::get_if<EventWaitNode>(&work)) node.wait = wait->event;
    if (const auto* alloc = std::get_if<MemAllocNode>(&work)) node.allocates = alloc->memory;
    if (const auto* free = std::get_if<MemFreeNode>(&work)) node.frees = free->memory;
    if (const auto* conditional = std::get_if<ConditionalNode>(&work)) {
        node.conditional = conditional->conditional;
        node.branch = conditional->type;
    }
}

void take_parameters(ExecNode& to, ExecNode& from) {
    to.op = std::move(from.op);
    to.operands = std::move(from.operands);
    to.record = std::move(from.record);
    to.wait = std::move(from.wait);
    to.conditional = std::move(from.conditional);
    for (std::size_t body = 0; body < to.bodies.size(); ++body) {
        for (std::size_t i = 0; i < to.bodies[body].size(); ++i)
            take_parameters(to.bodies[body][i], from.bodies[body][i]);
    }
}

// The nodes and those of all bodies.
template <class Nodes, class Visit>
void for_each(Nodes& nodes, const Visit& visit) {
    for (auto& node : nodes) {
        visit(node);
        for (auto& body : node.bodies) for_each(body, visit);
    }
}

bool allowed_in_body(CUgraphNodeType type) {
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_EMPTY ||
           type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

Op step_of(const ExecNode& node);

// Before all others: those that waited for none wait for it.
void put_first(std::vector<GraphNode>& steps, Op op) {
    for (GraphNode& step : steps) {
        for (std::size_t& index : step.after) ++index;
        for (std::size_t& index : step.early) ++index;
        if (step.after.empty()) step.after = {0};
    }
    steps.insert(steps.begin(), GraphNode{std::move(op), {}, {}});
}

// Chooses by the condition's value when its turn comes. The bodies are those of the time of the launch.
SpawnOp branch_of(const ExecNode& node) {
    using Bodies = std::vector<std::vector<ExecNode>>;
    return {[conditional = node.conditional, type = node.branch,
             bodies = std::make_shared<const Bodies>(node.bodies), again = false](auto& steps) mutable {
        if (std::exchange(again, true) && type != CU_GRAPH_COND_TYPE_WHILE) return false;
        const unsigned value = conditional->value();
        std::size_t chosen = value;
        if (type != CU_GRAPH_COND_TYPE_SWITCH) chosen = value != 0 ? 0 : 1;
        if (chosen >= bodies->size()) return false;
        for (const ExecNode& inner : (*bodies)[chosen]) steps.push_back({step_of(inner), inner.after});
        return true;
    }};
}

Op step_of(const ExecNode& node) {
    if (!node.enabled) return MarkerOp{};
    return node.conditional != nullptr ? Op{branch_of(node)} : node.op;
}

NodeWork work_of(const ExecNode& node) {
    const bool other = node.allocates != nullptr || node.frees != nullptr || node.conditional != nullptr ||
                       std::holds_alternative<SpawnOp>(node.op);
    require(!other, CUDA_ERROR_NOT_SUPPORTED);
    if (!node.enabled) return EmptyNode{};
    if (node.record != nullptr) return EventRecordNode{node.record};
    if (node.wait != nullptr) return EventWaitNode{node.wait};
    return captured_work(node.op);
}

}  // namespace

GraphExec::GraphExec(std::shared_ptr<Context> context, const Graph& graph, std::uint64_t flags,
                     CUgraphNode* failed)
    : context_(std::move(context)), flags_(flags), nodes_(lay_out(graph, failed)) {
    for_each(nodes_, [&](const ExecNode&) { charged_ += knobs().graph_bytes; });
    context_->charge(charged_);
    user_objects_ = graph.user_objects;
    for (const auto& [object, references] : user_objects_) object->retain(references);
}

GraphExec::~GraphExec() {
    if (is_live(context_.get())) context_->refund(charged_);
    for (const auto& [object, references] : user_objects_) object->release(references);
}

std::vector<ExecNode> GraphExec::lay_out(const Graph& graph, CUgraphNode* failed) const {
    std::vector<ExecNode> nodes;
    lay_out(graph, {}, nodes, failed);
    return nodes;
}

void GraphExec::lay_out(const Graph& graph, std::vector<std::size_t> after, std::vector<ExecNode>& into,
                        CUgraphNode* failed) const {
    require(!graph.has_circle(), CUDA_ERROR_INVALID_VALUE);
    std::map<const Node*, std::size_t> ends;  // where a node's work is complete
    for (Node* node : graph.in_order()) {
        ExecNode made{node->handle(), type_of(node->work), MarkerOp{}, {}};
        for (const Edge& edge : node->dependencies) {
            made.after.push_back(ends.at(edge.from));
            if (edge.data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)
                made.early.push_back(made.after.back());
        }
        if (made.after.empty()) made.after = after;
        made.removed = node->removed;
        try {
            fill(made, *context_, node->work);
        } catch (const Failure&) {
            if (failed) *failed = node->handle();
            throw;
        }
        if (const auto* conditional = std::get_if<ConditionalNode>(&node->work)) {
            for (const auto& body : conditional->bodies) {
                made.bodies.push_back(lay_out(*body, failed));
                for (const ExecNode& inner : made.bodies.back()) {
                    if (allowed_in_body(inner.type)) continue;
                    if (failed) *failed = inner.source;
                    throw Failure{CUDA_ERROR_INVALID_VALUE};
                }
            }
        }
        const std::size_t index = into.size();
        into.push_back(std::move(made));
        if (const auto* child = std::get_if<ChildNode>(&node->work)) {
            lay_out(*child->graph, {index}, into, failed);
            ExecNode close{nullptr, CU_GRAPH_NODE_TYPE_EMPTY, MarkerOp{}, {}};
            for (std::size_t i = index; i < into.size(); ++i) close.after.push_back(i);
            into.push_back(std::move(close));
            into[index].end = into.size();
        }
        ends[node] = into.size() - 1;
    }
}

void GraphExec::check_memory() const {
    std::set<const GraphMemory*> own;
    for (const ExecNode& node : nodes_) {
        if (node.allocates == nullptr) continue;
        own.insert(node.allocates.get());
        require(
            !node.allocates->outstanding() || (flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0,
            CUDA_ERROR_INVALID_VALUE);
    }
    for (const ExecNode& node : nodes_) {
        if (node.frees != nullptr && !own.contains(node.frees.get()))
            require(node.frees->outstanding(), CUDA_ERROR_INVALID_VALUE);
    }
}

// All allocations of a launch, had at once. One that is still there from the last launch, to be freed by this
// one automatically, is used again.
std::vector<std::shared_ptr<GraphMemory>> GraphExec::begin_uses(const Stream& stream) {
    std::vector<std::shared_ptr<GraphMemory>> begun;
    try {
        for (const ExecNode& node : nodes_) {
            if (node.allocates == nullptr || node.allocates->outstanding()) continue;
            node.allocates->begin_use(*context_, stream);
            begun.push_back(node.allocates);
        }
    } catch (const Failure&) {
        for (const auto& memory : begun) memory->end_use();
        throw;
    }
    return begun;
}

void GraphExec::hand_over_memory(const Stream& stream) {
    for (const ExecNode& node : nodes_) {
        if (node.allocates != nullptr) node.allocates->set_outstanding(true);
    }
    for (const ExecNode& node : nodes_) {
        if (node.frees == nullptr) continue;
        node.frees->set_outstanding(false);
        node.frees->pass_on(stream);
    }
}

void GraphExec::launch(Stream& stream) {
    require(is_live(context_.get()), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    std::vector<std::shared_ptr<Conditional>> defaults;
    for_each(nodes_, [&](const ExecNode& node) {
        if (node.enabled) require_unchanged(node);
        if (node.conditional != nullptr && node.conditional->assigns_default)
            defaults.push_back(node.conditional);
    });
    check_memory();
    const auto begun = begin_uses(stream);
    std::vector<GraphNode> steps;
    for (const ExecNode& node : nodes_) {
        GraphNode step{step_of(node), node.after, {}, node.early};
        if (node.wait) {
            std::lock_guard lock(node.wait->mutex);
            if (node.wait->record) step.waits_for.push_back(node.wait->record);
        }
        steps.push_back(std::move(step));
    }
    if (!defaults.empty()) {
        put_first(steps, ActionOp{[defaults] {
                      for (const auto& conditional : defaults) conditional->assign_default();
                  }});
    }
    std::vector<WorkPtr> works;
    try {
        works = submit_graph(stream, std::move(steps), last_);
    } catch (const Failure&) {
        for (const auto& memory : begun) memory->end_use();
        throw;
    }
    hand_over_memory(stream);
    if (!defaults.empty()) works.erase(works.begin());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i].record) continue;
        std::lock_guard lock(nodes_[i].record->mutex);
        nodes_[i].record->record = works[i];
        nodes_[i].record->captured.reset();
    }
    last_ = works.back();
}

ChildNode GraphExec::as_child() const {
    ChildNode child{std::make_shared<Graph>()};
    std::vector<CUgraphNode> made;
    for (const ExecNode& node : nodes_) {
        std::vector<CUgraphNode> after;
        for (std::size_t index : node.after) after.push_back(made[index]);
        made.push_back(child.graph->add(work_of(node), after).handle());
    }
    register_graph(child.graph);
    return child;
}

ExecNode& GraphExec::node(CUgraphNode source) {
    ExecNode* found = nullptr;
    for_each(nodes_, [&](ExecNode& node) {
        if (source && node.source == source) found = &node;
    });
    require(found != nullptr && !*found->removed, CUDA_ERROR_INVALID_VALUE);
    return *found;
}

void GraphExec::set(ExecNode& node, const NodeWork& work) {
    require(node.type == type_of(work) && can_be_set(node.type), CUDA_ERROR_INVALID_VALUE);
    ExecNode changed{node.source, node.type, MarkerOp{}, {}};
    fill(changed, *context_, work);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        require_not_mapped_anew(node);
        require(linear(node.op) && linear(changed.op), CUDA_ERROR_INVALID_VALUE);
        require(!empty(std::get<CopyOp>(changed.op)), CUDA_ERROR_INVALID_VALUE);
    }
    require(can_become(node.op, changed.op), CUDA_ERROR_INVALID_VALUE);
    take_parameters(node, changed);
}

void GraphExec::set_child(ExecNode& node, const Graph& graph) {
    require(node.type == CU_GRAPH_NODE_TYPE_GRAPH, CUDA_ERROR_INVALID_VALUE);
    const auto first = static_cast<std::size_t>(&node - nodes_.data()) + 1;
    std::vector<ExecNode> changed;
    lay_out(graph, {}, changed, nullptr);
    require(changed.size() == node.end - 1 - first, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < changed.size(); ++i) {
        const ExecNode& before = nodes_[first + i];
        require(changed[i].type == before.type && can_become(before.op, changed[i].op),
                CUDA_ERROR_INVALID_VALUE);
    }
    for (std::size_t i = 0; i < changed.size(); ++i) take_parameters(nodes_[first + i], changed[i]);
}

void GraphExec::update(const Graph& graph, CUgraphExecUpdateResultInfo& info) {
    info = {};
    auto refuse = [&](CUgraphExecUpdateResult why, CUgraphNode node) {
        info.result = why;
        info.errorNode = node;
        throw Failure{CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE};
    };
    std::vector<ExecNode> changed;
    try {
        changed = lay_out(graph, &info.errorNode);
    } catch (const Failure&) {
        refuse(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, info.errorNode);
    }
    CUgraphNode at = nullptr;
    if (const auto why = compare(nodes_, changed, at); why != CU_GRAPH_EXEC_UPDATE_SUCCESS) refuse(why, at);
    for (std::size_t i = 0; i < changed.size(); ++i) take_parameters(nodes_[i], changed[i]);
    info.result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

std::shared_ptr<GraphExec> instantiate(const std::shared_ptr<Context>& context, const Graph& graph,
                                       std::uint64_t flags, CUgraphNode* failed) {
    require(graph.parent == nullptr || !graph.moved, CUDA_ERROR_INVALID_VALUE);
    require(!graph.restricted() || graph.instance.expired(), CUDA_ERROR_NOT_SUPPORTED);
    auto exec = std::make_shared<GraphExec>(context, graph, flags, failed);
    graph.instance = exec;
    handles().add(exec);
    return exec;
}

std::shared_ptr<GraphExec> checked_exec(CUgraphExec handle) {
    auto exec = handles().find(handle);
    require(exec != nullptr, CUDA_ERROR_INVALID_VALUE);
    return exec;
}

void destroy_exec(CUgraphExec handle) {
    require(handles().remove(handle) != nullptr, CUDA_ERROR_INVALID_VALUE);
}

}  // namespace simcuda::driver

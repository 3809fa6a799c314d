#include "tools/simcuda/driver/graph_exec.h"

#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/graph_params.h"
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
    if (end.place == Place::Pinned && memory_map().find(address) == nullptr) address += kDeviceToHost;
    return operand(address, rows * end.pitch + copy.width);
}

std::vector<Operand> operands_of(const Op& op) {
    if (const auto* copy = std::get_if<CopyOp>(&op)) {
        if (copy->width * copy->height * copy->depth == 0) return {};
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

bool linear(const Op& op) {
    const auto* copy = std::get_if<CopyOp>(&op);
    return !copy || (copy->height == 1 && copy->depth == 1);
}

// Everything of the node but its place in the graph.
void fill(ExecNode& node, Context& context, const NodeWork& work) {
    node.op = operation(context, work);
    node.operands = operands_of(node.op);
    if (const auto* record = std::get_if<EventRecordNode>(&work)) node.record = record->event;
    if (const auto* wait = std::get_if<EventWaitNode>(&work)) node.wait = wait->event;
}

void take_parameters(ExecNode& to, ExecNode& from) {
    to.op = std::move(from.op);
    to.operands = std::move(from.operands);
    to.record = std::move(from.record);
    to.wait = std::move(from.wait);
}

}  // namespace

GraphExec::GraphExec(std::shared_ptr<Context> context, const Graph& graph, std::uint64_t flags,
                     CUgraphNode* failed)
    : context_(std::move(context)), flags_(flags), nodes_(lay_out(graph, failed)) {
    charged_ = nodes_.size() * knobs().graph_bytes;
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
    std::map<const Node*, std::size_t> ends;  // where a node's work is complete
    for (Node* node : graph.in_order()) {
        ExecNode made{node->handle(), type_of(node->work), MarkerOp{}, {}};
        for (const Edge& edge : node->dependencies) made.after.push_back(ends.at(edge.from));
        if (made.after.empty()) made.after = after;
        try {
            fill(made, *context_, node->work);
        } catch (const Failure&) {
            if (failed) *failed = node->handle();
            throw;
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

void GraphExec::launch(Stream& stream) {
    std::vector<GraphNode> steps;
    for (const ExecNode& node : nodes_) {
        if (node.enabled) require_unchanged(node);
        GraphNode step{node.enabled ? node.op : MarkerOp{}, node.after, {}};
        if (node.wait) {
            std::lock_guard lock(node.wait->mutex);
            if (node.wait->record) step.waits_for.push_back(node.wait->record);
        }
        steps.push_back(std::move(step));
    }
    const std::vector<WorkPtr> works = submit_graph(stream, std::move(steps), last_);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (!nodes_[i].record) continue;
        std::lock_guard lock(nodes_[i].record->mutex);
        nodes_[i].record->record = works[i];
        nodes_[i].record->captured.reset();
    }
    last_ = works.back();
}

ExecNode& GraphExec::node(CUgraphNode source) {
    auto it = std::find_if(nodes_.begin(), nodes_.end(),
                           [&](const ExecNode& node) { return source && node.source == source; });
    require(it != nodes_.end(), CUDA_ERROR_INVALID_VALUE);
    return *it;
}

void GraphExec::set(ExecNode& node, const NodeWork& work) {
    require(node.type == type_of(work), CUDA_ERROR_INVALID_VALUE);
    ExecNode changed{node.source, node.type, MarkerOp{}, {}};
    fill(changed, *context_, work);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        require_unchanged(node);
        require(linear(node.op) && linear(changed.op), CUDA_ERROR_INVALID_VALUE);
    }
    take_parameters(node, changed);
}

void GraphExec::set_child(ExecNode& node, const Graph& graph) {
    require(node.type == CU_GRAPH_NODE_TYPE_GRAPH, CUDA_ERROR_INVALID_VALUE);
    const auto first = static_cast<std::size_t>(&node - nodes_.data()) + 1;
    std::vector<ExecNode> changed;
    lay_out(graph, {}, changed, nullptr);
    require(changed.size() == node.end - 1 - first, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < changed.size(); ++i) {
        require(changed[i].type == nodes_[first + i].type, CUDA_ERROR_INVALID_VALUE);
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
    if (changed.size() != nodes_.size()) refuse(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
    for (std::size_t i = 0; i < changed.size(); ++i) {
        const ExecNode& before = nodes_[i];
        const ExecNode& after = changed[i];
        if (before.type != after.type) refuse(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, after.source);
        if (before.after != after.after) refuse(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, after.source);
        const bool changeable = linear(before.op) && linear(after.op);
        if (!changeable && before.operands != after.operands) {
            refuse(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, after.source);
        }
    }
    for (std::size_t i = 0; i < changed.size(); ++i) take_parameters(nodes_[i], changed[i]);
    info.result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

std::shared_ptr<GraphExec> instantiate(const std::shared_ptr<Context>& context, const Graph& graph,
                                       std::uint64_t flags, CUgraphNode* failed) {
    auto exec = std::make_shared<GraphExec>(context, graph, flags, failed);
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

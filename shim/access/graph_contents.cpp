#include "shim/access/graph_contents.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "shim/access/arguments.h"
#include "shim/access/elsewhere.h"
#include "shim/device/driver_table.h"
#include "shim/util/mutex.h"

namespace lms::access {

namespace {

using device::driver;

// By conditional node. Never destroyed: other libraries' exit handlers build graphs too.
struct Bodies {
    util::Mutex mutex{util::LockOrder::Table};
    std::unordered_map<CUgraphNode, std::vector<CUgraph>> of LMS_GUARDED_BY(mutex);
};

Bodies& bodies() {
    static Bodies& instance = *new Bodies;
    return instance;
}

// A batch of copies as a node, since CUDA 13.5: cuda.h's CUDA_MEMCPY_BATCH_NODE_PARAMS_V1, which lies where
// the parameters of any node begin.
constexpr auto kMemcpyBatchNode = static_cast<CUgraphNodeType>(14);
struct MemcpyBatch {
    std::size_t count;
    const CUdeviceptr* to;
    const CUdeviceptr* from;
    const std::size_t* bytes;
};

GraphContents contents_of_batch(const CUgraphNodeParams& node) {
    MemcpyBatch batch;
    std::memcpy(&batch, &node.kernel, sizeof batch);
    GraphContents contents;
    for (std::size_t i = 0; i < batch.count; ++i) {
        const StridedRegion from{batch.from[i], batch.bytes[i]};
        const StridedRegion to{batch.to[i], batch.bytes[i]};
        contents.operands.insert(contents.operands.end(), {span_of(from), span_of(to)});
        contents.copies.push_back({to, from, CU_MEMORYTYPE_UNIFIED});
    }
    return contents;
}

GraphContents unreadable() {
    GraphContents contents;
    contents.kernels.opaque = true;
    return contents;
}

std::optional<std::vector<CUgraphNode>> nodes_of(CUgraph graph) {
    std::size_t count = 0;
    if (driver().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return std::nullopt;
    std::vector<CUgraphNode> nodes(count);
    if (driver().cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return std::nullopt;
    nodes.resize(count);
    return nodes;
}

// Memory that the graph allocates may hold tables, as any that is not managed.
void note_allocations(std::span<const CUgraphNode> nodes) {
    for (const CUgraphNode node : nodes) {
        CUgraphNodeType type;
        CUDA_MEM_ALLOC_NODE_PARAMS made{};
        if (driver().cuGraphNodeGetType(node, &type) == CUDA_SUCCESS &&
            type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            driver().cuGraphMemAllocNodeGetParams(node, &made) == CUDA_SUCCESS) {
            note_unmanaged(made.dptr, made.bytesize);
            note_graph_memory(made.dptr, made.bytesize);
        }
    }
}

// Kernels on the GPU may give it any parameters.
bool device_updatable(CUgraphNode node) {
    CUlaunchAttributeValue value{};
    return driver().cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
                                                  &value) == CUDA_SUCCESS &&
           value.deviceUpdatableKernelNode.deviceUpdatable != 0;
}

GraphPart part_of_kernel_node(CUgraphNode node) {
    CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
    if (driver().cuGraphKernelNodeGetParams_v2(node, &kernel) != CUDA_SUCCESS) return GraphPart(unreadable());
    GraphPart part(contents_of(kernel));
    part.device_updatable = device_updatable(node);
    part.attributes = attributes_of(node);
    return part;
}

GraphPart part_of_bodies(CUgraphNode node) {
    std::vector<CUgraph> graphs;
    {
        const util::Lock lock(bodies().mutex);
        const auto it = bodies().of.find(node);
        if (it == bodies().of.end()) return GraphPart(unreadable());
        graphs = it->second;
    }
    GraphPart part;
    for (const CUgraph graph : graphs) part.parts.push_back(part_of(graph));
    return part;
}

GraphPart part_of_batch(CUgraphNode node) {
    CUgraphNodeParams batch{};
    const auto read = device::typed<decltype(::cuGraphNodeGetParams)>(driver().cuGraphNodeGetParams);
    return GraphPart(read(node, &batch) == CUDA_SUCCESS ? contents_of_batch(batch) : unreadable());
}

// Of a node whose parameters tell nothing of memory, or that a newer driver has and may reach any.
GraphPart part_without_parameters(CUgraphNodeType type) {
    switch (type) {
        case CU_GRAPH_NODE_TYPE_EMPTY: {
            GraphPart part;
            part.own.step = std::make_shared<const GraphStep>();
            return part;
        }
        case CU_GRAPH_NODE_TYPE_HOST:
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return {};
        default:
            return GraphPart(unreadable());
    }
}

GraphPart part_of_node(CUgraphNode node) {
    CUgraphNodeType type;
    if (driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return GraphPart(unreadable());
    if (type == kMemcpyBatchNode) return part_of_batch(node);
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return part_of_kernel_node(node);
        case CU_GRAPH_NODE_TYPE_MEMCPY: {
            CUDA_MEMCPY3D copy{};
            const bool read = driver().cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS;
            return GraphPart(read ? contents_of(copy) : unreadable());
        }
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            CUDA_MEMSET_NODE_PARAMS set{};
            const bool read = driver().cuGraphMemsetNodeGetParams(node, &set) == CUDA_SUCCESS;
            return GraphPart(read ? contents_of(set) : unreadable());
        }
        case CU_GRAPH_NODE_TYPE_GRAPH: {
            CUgraph child = nullptr;
            const bool read = driver().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS;
            return read ? part_of(child) : GraphPart(unreadable());
        }
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
            const bool read = driver().cuGraphBatchMemOpNodeGetParams(node, &batch) == CUDA_SUCCESS;
            return GraphPart(read ? contents_of(batch) : unreadable());
        }
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return part_of_bodies(node);
        default:
            return part_without_parameters(type);
    }
}

// The nodes that `node` comes after. What an edge carries does not matter, but the driver must be able to
// tell it.
std::optional<std::vector<CUgraphNode>> nodes_before(CUgraphNode node) {
    const auto ask = [&](CUgraphNode* nodes, CUgraphEdgeData* edges, std::size_t& count) {
        return device::driver_has(device::Entry::cuGraphNodeGetDependencies_v2)
                   ? driver().cuGraphNodeGetDependencies_v2(node, nodes, edges, &count)
                   : driver().cuGraphNodeGetDependencies(node, nodes, &count);
    };
    std::size_t count = 0;
    if (ask(nullptr, nullptr, count) != CUDA_SUCCESS) return std::nullopt;
    std::vector<CUgraphNode> nodes(count);
    std::vector<CUgraphEdgeData> edges(count);
    if (count > 0 && ask(nodes.data(), edges.data(), count) != CUDA_SUCCESS) return std::nullopt;
    return nodes;
}

// Fills in `after`; false where the driver does not tell.
bool put_in_order(std::vector<GraphPart>& parts) {
    std::unordered_map<CUgraphNode, std::size_t> places;
    for (std::size_t i = 0; i < parts.size(); ++i) places[parts[i].node] = i;
    for (GraphPart& part : parts) {
        const auto before = nodes_before(part.node);
        if (!before) return false;
        for (const CUgraphNode node : *before) {
            const auto place = places.find(node);
            if (place == places.end()) return false;
            part.after.push_back(place->second);
        }
    }
    return true;
}

// By the place of each of `to`'s parts, the place of its partner in `from`; nothing where they do not pair.
std::optional<std::vector<std::size_t>> partners(const GraphPart& to, const GraphPart& from) {
    const std::size_t count = to.parts.size();
    if (count != from.parts.size() || !to.ordered || !from.ordered) return std::nullopt;
    const auto last_ones = [&](const GraphPart& graph) {
        std::vector<bool> last(count, true);
        for (const GraphPart& part : graph.parts) {
            for (const std::size_t before : part.after) last[before] = false;
        }
        std::vector<std::size_t> places;
        for (std::size_t i = 0; i < count; ++i) {
            if (last[i]) places.push_back(i);
        }
        return places;
    };
    std::vector<std::size_t> partner(count, count);
    std::vector<std::size_t> found;
    const auto pair = [&](const std::vector<std::size_t>& these, const std::vector<std::size_t>& those) {
        if (these.size() != those.size()) return false;
        for (std::size_t i = 0; i < these.size(); ++i) {
            std::size_t& known = partner[these[i]];
            if (known == those[i]) continue;
            if (known != count) return false;
            known = those[i];
            found.push_back(these[i]);
        }
        return true;
    };
    if (!pair(last_ones(to), last_ones(from))) return std::nullopt;
    while (!found.empty()) {
        const std::size_t place = found.back();
        found.pop_back();
        if (!pair(to.parts[place].after, from.parts[partner[place]].after)) return std::nullopt;
    }
    return partner;
}

bool pair_up(const GraphPart& to, const GraphPart& from) {
    const auto partner = partners(to, from);
    if (!partner) return false;
    for (std::size_t i = 0; i < to.parts.size(); ++i) {
        if (!pair_up(to.parts[i], from.parts[(*partner)[i]])) return false;
    }
    return true;
}

bool same(const std::vector<CUlaunchAttribute>& these, const std::vector<CUlaunchAttribute>& those) {
    return std::ranges::equal(these, those, [](const CUlaunchAttribute& a, const CUlaunchAttribute& b) {
        return a.id == b.id && std::ranges::equal(std::as_bytes(std::span(&a.value, 1)),
                                                  std::as_bytes(std::span(&b.value, 1)));
    });
}

void exchange_contents(GraphPart& to, GraphPart& from) {
    std::swap(to.own, from.own);
    std::swap(to.kept, from.kept);
    to.device_updatable |= from.device_updatable;
    // Parameters alone change none, and nobody says whether a graph does.
    to.attributes_doubtful |= from.node && !same(to.attributes, from.attributes);
    const auto partner = *partners(to, from);
    for (std::size_t i = 0; i < to.parts.size(); ++i) exchange_contents(to.parts[i], from.parts[partner[i]]);
}

void merge_all(GraphContents& into, const GraphPart& part) {
    merge(into, part.own);
    for (const GraphPart& inner : part.parts) merge_all(into, inner);
}

template <typename Values>
void append(Values& into, const Values& from) {
    into.insert(into.end(), from.begin(), from.end());
}

}  // namespace

GraphPart part_of(CUgraph graph) {
    const auto nodes = nodes_of(graph);
    if (!nodes) return GraphPart(unreadable());
    note_allocations(*nodes);
    GraphPart whole;
    whole.is_graph = true;
    for (const CUgraphNode node : *nodes) {
        whole.parts.push_back(part_of_node(node));
        whole.parts.back().node = node;
    }
    whole.ordered = put_in_order(whole.parts);
    return whole;
}

GraphContents contents_of(const CUDA_MEMCPY3D& copy) {
    const StridedRegion from = source_of(copy);
    const StridedRegion to = destination_of(copy);
    GraphContents contents;
    contents.operands = {span_of(from), span_of(to)};
    if (copy.dstMemoryType != CU_MEMORYTYPE_HOST) contents.copies.push_back({to, from, copy.srcMemoryType});
    contents.step = std::make_shared<const GraphStep>(copy);
    return contents;
}

GraphContents contents_of(const CUDA_MEMSET_NODE_PARAMS& set) {
    GraphContents contents;
    contents.step = std::make_shared<const GraphStep>(set);
    if (set.width == 0 || set.height == 0) return contents;
    contents.operands = {{set.dst, (set.height - 1) * set.pitch + set.width * set.elementSize}};
    return contents;
}

GraphContents contents_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& batch) {
    GraphContents contents;
    const auto operations = operations_of(batch.paramArray, batch.count);
    contents.operands = words_of(operations);
    contents.words = written_by(operations);
    return contents;
}

GraphContents contents_of(const CUDA_KERNEL_NODE_PARAMS_v2& kernel) {
    GraphContents contents;
    const CUfunction function = kernel.func ? kernel.func : reinterpret_cast<CUfunction>(kernel.kern);
    add_arguments(contents.kernels, function, kernel.kernelParams, kernel.extra, nullptr, true);
    contents.kernels.opaque |= layout_of(function)->exempt->is_known();
    if (contents.kernels.unseen && !names_managed(contents.kernels))
        append(contents.blind_owners, contents.kernels.owners);
    contents.step = step_of(kernel);
    return contents;
}

GraphPart part_of(const CUgraphNodeParams& node) {
    if (node.type == kMemcpyBatchNode) return GraphPart(contents_of_batch(node));
    switch (node.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return GraphPart(contents_of(version_2(node.kernel)));
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return GraphPart(contents_of(node.memcpy.copyParams));
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return GraphPart(contents_of(CUDA_MEMSET_NODE_PARAMS{node.memset.dst, node.memset.pitch,
                                                                 node.memset.value, node.memset.elementSize,
                                                                 node.memset.width, node.memset.height}));
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return part_of(node.graph.graph);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return GraphPart(contents_of(CUDA_BATCH_MEM_OP_NODE_PARAMS{
                node.memOp.ctx, node.memOp.count, node.memOp.paramArray, node.memOp.flags}));
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return {};  // its bodies are still to be filled
        default:
            return part_without_parameters(node.type);
    }
}

GraphContents contents_of(const CUgraphNodeParams& node) {
    GraphContents all;
    merge_all(all, part_of(node));
    return all;
}

void merge(GraphContents& into, const GraphContents& from) {
    append(into.blind_owners, from.blind_owners);
    into.kernels.opaque |= from.kernels.opaque;
    into.kernels.unseen |= from.kernels.unseen;
    append(into.kernels.addresses, from.kernels.addresses);
    append(into.kernels.only_read, from.kernels.only_read);
    append(into.kernels.owners, from.kernels.owners);
    append(into.kernels.used, from.kernels.used);
    append(into.operands, from.operands);
    append(into.copies, from.copies);
    append(into.words, from.words);
}

bool exchange_paired(GraphPart& to, GraphPart& from) {
    if (!pair_up(to, from)) return false;
    exchange_contents(to, from);
    return true;
}

void note_bodies(CUgraphNode node, std::span<const CUgraph> graphs) {
    const util::Lock lock(bodies().mutex);
    bodies().of[node].assign(graphs.begin(), graphs.end());
}

KnownBodies forget_bodies(CUgraph graph) {
    {
        const util::Lock lock(bodies().mutex);
        if (bodies().of.empty()) return {};
    }
    const auto nodes = nodes_of(graph);
    if (!nodes) return {};
    KnownBodies gone;
    {
        const util::Lock lock(bodies().mutex);
        for (const CUgraphNode node : *nodes) {
            auto known = bodies().of.extract(node);
            if (known) gone.emplace_back(node, std::move(known.mapped()));
        }
    }
    for (std::size_t own = gone.size(), i = 0; i < own; ++i) {
        for (const CUgraph body : std::vector(gone[i].second)) append(gone, forget_bodies(body));
    }
    return gone;
}

}  // namespace lms::access

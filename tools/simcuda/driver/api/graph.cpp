// cuGraph*: graphs and their shape.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/graph/graph.h"
#include "tools/simcuda/driver/user_object.h"

namespace simcuda::driver {
namespace {

// CUDA's way to answer a list: without room it says how many; with room it fills it, the rest with zeros, and
// says how many there were.
template <class Handle, class Objects, class Convert>
CUresult answer_list(const Objects& objects, Handle* out, std::size_t* count, Convert convert) {
    require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
    if (out) {
        for (std::size_t i = 0; i < *count; ++i) out[i] = i < objects.size() ? convert(objects[i]) : Handle{};
        *count = std::min(*count, objects.size());
    } else {
        *count = objects.size();
    }
    return CUDA_SUCCESS;
}

template <class Objects>
CUresult answer_nodes(const Objects& nodes, CUgraphNode* out, std::size_t* count) {
    return answer_list(nodes, out, count, [](const auto& node) { return node->handle(); });
}

struct FullEdge {
    Node* from;
    Node* to;
    CUgraphEdgeData data;
};

// A call that knows nothing of edge data may not be told of edges that carry some.
template <class Convert>
CUresult answer_edges(const std::vector<FullEdge>& edges, CUgraphNode* out, CUgraphEdgeData* data,
                      bool with_data, std::size_t* count, Convert convert) {
    require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
    const bool plain = std::all_of(edges.begin(), edges.end(), [](const FullEdge& edge) {
        return edge.data.from_port == 0 && edge.data.to_port == 0 && edge.data.type == 0;
    });
    require(plain || (with_data && (data || !out)), CUDA_ERROR_LOSSY_QUERY);
    if (data) {
        for (std::size_t i = 0; i < std::min(*count, edges.size()); ++i) data[i] = edges[i].data;
    }
    return answer_list(edges, out, count, convert);
}

std::vector<FullEdge> edges_of(const Graph& graph) {
    std::vector<FullEdge> edges;
    for (const auto& node : graph.nodes()) {
        for (const Edge& edge : node->dependencies) edges.push_back({edge.from, node.get(), edge.data});
    }
    return edges;
}

CUresult get_edges(Entry entry, CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                   bool with_data, std::size_t* count) {
    return call(entry, [&] {
        require(count != nullptr && (from == nullptr) == (to == nullptr), CUDA_ERROR_INVALID_VALUE);
        const std::vector<FullEdge> edges = edges_of(*checked_graph(graph));
        if (from) {
            std::size_t room = *count;
            answer_list(edges, from, &room, [](const FullEdge& edge) { return edge.from->handle(); });
        }
        return answer_edges(edges, to, data, with_data, count,
                            [](const FullEdge& edge) { return edge.to->handle(); });
    });
}

CUresult get_dependencies(Entry entry, CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data,
                          bool with_data, std::size_t* count) {
    return call(entry, [&] {
        const auto node = checked_node(handle);
        std::vector<FullEdge> edges;
        for (const Edge& edge : node->dependencies) edges.push_back({edge.from, node.get(), edge.data});
        return answer_edges(edges, out, data, with_data, count,
                            [](const FullEdge& edge) { return edge.from->handle(); });
    });
}

CUresult get_dependents(Entry entry, CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data,
                        bool with_data, std::size_t* count) {
    return call(entry, [&] {
        const auto node = checked_node(handle);
        std::vector<FullEdge> edges = edges_of(*node->graph);
        std::erase_if(edges, [&](const FullEdge& edge) { return edge.from != node.get(); });
        return answer_edges(edges, out, data, with_data, count,
                            [](const FullEdge& edge) { return edge.to->handle(); });
    });
}

CUresult add_dependencies(Entry entry, CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                          const CUgraphEdgeData* data, std::size_t count) {
    return call(entry, [&] {
        require(count == 0 || (from != nullptr && to != nullptr), CUDA_ERROR_INVALID_VALUE);
        const auto graph = checked_graph(handle);
        for (std::size_t i = 0; i < count; ++i) {
            graph->add_dependency(*checked_node(from[i]), *checked_node(to[i]),
                                  data ? data[i] : CUgraphEdgeData{});
        }
        return CUDA_SUCCESS;
    });
}

CUresult remove_dependencies(Entry entry, CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                             std::size_t count) {
    return call(entry, [&] {
        require(count == 0 || (from != nullptr && to != nullptr), CUDA_ERROR_INVALID_VALUE);
        const auto graph = checked_graph(handle);
        for (std::size_t i = 0; i < count; ++i)
            graph->remove_dependency(*checked_node(from[i]), *checked_node(to[i]));
        return CUDA_SUCCESS;
    });
}

constexpr const char* kTypeNames[] = {
    "KERNEL",       "MEMCPY",       "MEMSET",           "HOST",           "GRAPH",     "EMPTY",
    "EVENT_WAIT",   "EVENT_RECORD", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC", "MEM_FREE",
    "BATCH_MEM_OP", "CONDITIONAL"};
static_assert(CU_GRAPH_NODE_TYPE_CONDITIONAL + 1 == std::size(kTypeNames));

const char* direction_of(const CUDA_MEMCPY3D& copy) {
    if (copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED || copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        return "Default";
    if (copy.srcMemoryType == CU_MEMORYTYPE_HOST)
        return copy.dstMemoryType == CU_MEMORYTYPE_HOST ? "HtoH" : "HtoD";
    return copy.dstMemoryType == CU_MEMORYTYPE_HOST ? "DtoH" : "DtoD";
}

// A node's line of a drawing.
std::string label_of(const NodeWork& work) {
    std::string label = kTypeNames[type_of(work)];
    if (const auto* memcpy = std::get_if<MemcpyNode>(&work))
        label += std::string(" ") + direction_of(memcpy->copy);
    return label;
}

}  // namespace

SIMCUDA_API cuGraphCreate(CUgraph* graph, unsigned flags) {
    return call(Entry::cuGraphCreate, [&] {
        require(graph != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        *graph = create_graph()->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphDestroy(CUgraph graph) {
    return call(Entry::cuGraphDestroy, [&] {
        release_graph(graph);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphClone(CUgraph* clone, CUgraph original) {
    return call(Entry::cuGraphClone, [&] {
        require(clone != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto copy = checked_graph(original)->clone();
        register_graph(copy);
        *clone = copy->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original, CUgraph clone) {
    return call(Entry::cuGraphNodeFindInClone, [&] {
        require(found != nullptr, CUDA_ERROR_INVALID_VALUE);
        Node* node = checked_graph(clone)->find_clone_of(*checked_node(original));
        require(node != nullptr, CUDA_ERROR_INVALID_VALUE);
        *found = node->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphDestroyNode(CUgraphNode handle) {
    return call(Entry::cuGraphDestroyNode, [&] {
        const auto node = checked_node(handle);
        node->graph->remove(*node);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
    return call(Entry::cuGraphNodeGetType, [&] {
        require(type != nullptr, CUDA_ERROR_INVALID_VALUE);
        *type = type_of(checked_node(node)->work);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
    return call(Entry::cuGraphGetNodes,
                [&] { return answer_nodes(checked_graph(graph)->nodes(), nodes, count); });
}

SIMCUDA_API cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
    return call(Entry::cuGraphGetRootNodes, [&] {
        std::vector<std::shared_ptr<Node>> roots;
        std::ranges::copy_if(checked_graph(graph)->nodes(), std::back_inserter(roots),
                             [](const auto& node) { return node->dependencies.empty(); });
        return answer_nodes(roots, nodes, count);
    });
}

SIMCUDA_API cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
    return get_edges(Entry::cuGraphGetEdges, graph, from, to, nullptr, false, count);
}

SIMCUDA_API cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                               std::size_t* count) {
    return get_edges(Entry::cuGraphGetEdges_v2, graph, from, to, data, true, count);
}

SIMCUDA_API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, std::size_t* count) {
    return get_dependencies(Entry::cuGraphNodeGetDependencies, node, nodes, nullptr, false, count);
}

SIMCUDA_API cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data,
                                          std::size_t* count) {
    return get_dependencies(Entry::cuGraphNodeGetDependencies_v2, node, nodes, data, true, count);
}

SIMCUDA_API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, std::size_t* count) {
    return get_dependents(Entry::cuGraphNodeGetDependentNodes, node, nodes, nullptr, false, count);
}

SIMCUDA_API cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data,
                                            std::size_t* count) {
    return get_dependents(Entry::cuGraphNodeGetDependentNodes_v2, node, nodes, data, true, count);
}

SIMCUDA_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   std::size_t count) {
    return add_dependencies(Entry::cuGraphAddDependencies, graph, from, to, nullptr, count);
}

SIMCUDA_API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, std::size_t count) {
    return add_dependencies(Entry::cuGraphAddDependencies_v2, graph, from, to, data, count);
}

SIMCUDA_API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      std::size_t count) {
    return remove_dependencies(Entry::cuGraphRemoveDependencies, graph, from, to, count);
}

SIMCUDA_API cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                         const CUgraphEdgeData*, std::size_t count) {
    return remove_dependencies(Entry::cuGraphRemoveDependencies_v2, graph, from, to, count);
}

SIMCUDA_API cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
    return call(Entry::cuGraphDebugDotPrint, [&] {
        require(path != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto graph = checked_graph(handle);
        std::FILE* file = std::fopen(path, "w");
        require(file != nullptr, CUDA_ERROR_OPERATING_SYSTEM);
        std::fputs("digraph graph_1 {\n", file);
        for (const auto& node : graph->nodes()) {
            std::fprintf(file, "  \"%p\" [label=\"%s\"];\n", static_cast<void*>(node.get()),
                         label_of(node->work).c_str());
            for (const Edge& edge : node->dependencies) {
                std::fprintf(file, "  \"%p\" -> \"%p\";\n", static_cast<void*>(edge.from),
                             static_cast<void*>(node.get()));
            }
        }
        std::fputs("}\n", file);
        return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    });
}

SIMCUDA_API cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned references,
                               unsigned flags) {
    return call(Entry::cuUserObjectCreate, [&] {
        require(object && destroy && references != 0 && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC,
                CUDA_ERROR_INVALID_VALUE);
        *object = create_user_object(pointer, destroy, references)->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuUserObjectRetain(CUuserObject object, unsigned count) {
    return call(Entry::cuUserObjectRetain, [&] {
        require(count != 0, CUDA_ERROR_INVALID_VALUE);
        checked_user_object(object)->retain(count);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuUserObjectRelease(CUuserObject object, unsigned count) {
    return call(Entry::cuUserObjectRelease, [&] {
        require(count != 0, CUDA_ERROR_INVALID_VALUE);
        checked_user_object(object)->release(count);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
    return call(Entry::cuGraphRetainUserObject, [&] {
        require(count != 0 && (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) == 0, CUDA_ERROR_INVALID_VALUE);
        const auto held = checked_user_object(object);
        checked_graph(graph)->user_objects[held] += count;
        if (flags != CU_GRAPH_USER_OBJECT_MOVE) held->retain(count);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
    return call(Entry::cuGraphReleaseUserObject, [&] {
        const auto held = checked_user_object(object);
        auto& objects = checked_graph(graph)->user_objects;
        auto it = objects.find(held);
        require(it != objects.end() && count != 0 && count <= it->second, CUDA_ERROR_INVALID_VALUE);
        if ((it->second -= count) == 0) objects.erase(it);
        held->release(count);
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

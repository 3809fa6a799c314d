// What a graph's nodes reach and copy, read from the driver or from the parameters that a node is given.
#pragma once

#include <memory>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "shim/access/graph_step.h"
#include "shim/access/memory_operations.h"
#include "shim/access/pointer_tables.h"
#include "shim/session/submit.h"

namespace lms::access {

// A copy to device memory among a graph's nodes.
struct GraphCopy {
    StridedRegion to;
    StridedRegion from;
    CUmemorytype from_type;
};

struct GraphContents {
    session::WorkingSet kernels;
    std::vector<session::Range> operands;  // of the other nodes; any addresses
    std::vector<GraphCopy> copies;
    std::vector<WrittenWord> words;  // by memory operations
    // Modules and libraries of its kernels whose code cannot be seen and that name no managed memory.
    std::pmr::vector<const void*> blind_owners;
    std::shared_ptr<const GraphStep> step;  // of one node; null: it can only be part of a graph
};

// A node, or a whole graph, whose nodes are its parts; so are those of a child graph and of conditional
// bodies.
struct GraphPart {
    GraphPart() = default;
    explicit GraphPart(GraphContents contents) : own(std::move(contents)) {}

    CUgraphNode node = nullptr;     // in the graph it was read from; null: a graph, or a node nobody can name
    GraphContents own;              // without the parts'
    bool device_updatable = false;  // kernels on the GPU may give it any parameters
    bool is_graph = false;
    std::vector<CUlaunchAttribute> attributes;  // of a kernel, if it was read from a graph
    bool attributes_doubtful = false;           // they, or those of its parts, may be others by now
    std::vector<GraphPart> parts;               // in the driver's order
    // Of a node in a graph: its place among the parts of those it comes after, in the driver's order.
    std::vector<std::size_t> after;
    bool ordered = true;  // of a graph: whether `after` is known of its nodes

    // Of an executable graph's (access/graphs.h).
    std::vector<session::PinnedIn> kept;
    bool enabled = true;
    bool enabled_doubtful = false;  // changed while it was off: nobody says whether it still is
};

// Thread-safe. Also of use before any memory is managed: what is then may be named by tables that a graph
// reaches.

// What a graph or a node with these parameters has, and the same without its structure.
GraphPart part_of(CUgraph graph);
GraphPart part_of(const CUgraphNodeParams& node);
GraphContents contents_of(const CUgraphNodeParams& node);

// Of one node with these parameters; nothing of types that have no memory.
GraphContents contents_of(const CUDA_MEMCPY3D& copy);
GraphContents contents_of(const CUDA_MEMSET_NODE_PARAMS& set);
GraphContents contents_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& batch);
GraphContents contents_of(const CUDA_KERNEL_NODE_PARAMS_v2& kernel);

// Adds what `from` has.
void merge(GraphContents& into, const GraphContents& from);

// Gives the nodes of `to` what those of `from` have by which the driver replaces them, and `from` what they
// had: it pairs the nodes nothing comes after in their order, and then what each comes after. False, and
// nothing is changed, where they do not pair.
bool exchange_paired(GraphPart& to, GraphPart& from);

// A conditional node was created with these bodies, which the driver does not tell of again. It keeps them
// for as long as the node lives; the graph they are in can be neither cloned nor made a child.
void note_bodies(CUgraphNode node, std::span<const CUgraph> bodies);
// The graph is about to be destroyed, its conditional nodes and their bodies with it: what was known of them,
// to be noted again if the driver does not destroy it.
using KnownBodies = std::vector<std::pair<CUgraphNode, std::vector<CUgraph>>>;
KnownBodies forget_bodies(CUgraph graph);

}  // namespace lms::access

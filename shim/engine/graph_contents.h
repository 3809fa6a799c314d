// What a graph's nodes reach and copy, read from the driver or from the parameters that a node is given.
#pragma once

#include <span>
#include <vector>

#include "shim/engine/submit.h"
#include "shim/engine/tables.h"

namespace lms::engine {

// A copy to device memory among a graph's nodes.
struct GraphCopy {
    Box to;
    Box from;
    CUmemorytype from_type;
};

struct GraphContents {
    Reach kernels;
    std::vector<Range> operands;  // of the other nodes; any addresses
    std::vector<GraphCopy> copies;
};

// Thread-safe. Nothing where no memory is managed.

// Of all nodes, those of child graphs and of conditional bodies included.
GraphContents contents_of(CUgraph graph);
// Of one node with these parameters; nothing of types that have no memory.
GraphContents contents_of(const CUgraphNodeParams& node);
GraphContents contents_of(const CUDA_MEMCPY3D& copy);
GraphContents contents_of(const CUDA_MEMSET_NODE_PARAMS& set);
GraphContents contents_of(std::span<const CUstreamBatchMemOpParams> operations);
GraphContents contents_of_kernel(CUfunction function, void** parameters, void** extra);

// Adds what `from` has.
void merge(GraphContents& into, const GraphContents& from);

// A conditional node was created with these bodies, which the driver does not tell of again. It keeps them
// for as long as the node lives; the graph they are in can be neither cloned nor made a child.
void note_bodies(CUgraphNode node, std::span<const CUgraph> bodies);
// The graph is about to be destroyed, its conditional nodes and their bodies with it.
void forget_bodies(CUgraph graph);

}  // namespace lms::engine

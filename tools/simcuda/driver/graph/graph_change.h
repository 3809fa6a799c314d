// What an executable graph can be changed to.
#pragma once

#include "tools/simcuda/driver/graph/graph_exec.h"

namespace simcuda::driver {

bool empty(const CopyOp& copy);
bool linear(const Op& op);  // copies of one row; everything that is no copy

// An executable graph's copy keeps its kinds of memory, its fill the rows it has; one of several rows keeps
// all but its address and value.
bool can_become(const Op& before, const Op& after);

// Why one may not take over the parameters of the other; `at` is told which node.
CUgraphExecUpdateResult compare(const std::vector<ExecNode>& before, const std::vector<ExecNode>& after,
                                CUgraphNode& at);

}  // namespace simcuda::driver

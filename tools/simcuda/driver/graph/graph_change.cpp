#include "tools/simcuda/driver/graph/graph_change.h"

#include "tools/simcuda/driver/graph/graph_params.h"

namespace simcuda::driver {
namespace {

bool of_one_shape(const MemsetOp& a, const MemsetOp& b) {
    return a.width == b.width && a.height == b.height && a.pitch == b.pitch &&
           a.element_bytes == b.element_bytes;
}

}  // namespace

bool empty(const CopyOp& copy) {
    return copy.width * copy.height * copy.depth == 0;
}

bool linear(const Op& op) {
    const auto* copy = std::get_if<CopyOp>(&op);
    return !copy || (copy->height == 1 && copy->depth == 1);
}

bool can_become(const Op& before, const Op& after) {
    const auto* copy = std::get_if<CopyOp>(&before);
    const auto* other_copy = std::get_if<CopyOp>(&after);
    if (copy != nullptr && other_copy != nullptr && !empty(*copy) && !empty(*other_copy)) {
        return memory_type(copy->from) == memory_type(other_copy->from) &&
               memory_type(copy->to) == memory_type(other_copy->to);
    }
    const auto* fill = std::get_if<MemsetOp>(&before);
    const auto* other_fill = std::get_if<MemsetOp>(&after);
    if (fill == nullptr || other_fill == nullptr) return true;
    return (fill->height == 1 && other_fill->height == 1) || of_one_shape(*fill, *other_fill);
}

CUgraphExecUpdateResult compare(const std::vector<ExecNode>& before, const std::vector<ExecNode>& after,
                                CUgraphNode& at) {
    if (before.size() != after.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (std::size_t i = 0; i < before.size(); ++i) {
        at = after[i].source;
        const bool removed = before[i].removed != nullptr && *before[i].removed;
        // NVIDIA's driver finds no pair for a node of another type, and does not speak of the type.
        if (removed || before[i].type != after[i].type || before[i].after != after[i].after)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        const bool changeable = linear(before[i].op) && linear(after[i].op);
        if ((!changeable && before[i].operands != after[i].operands) ||
            !can_become(before[i].op, after[i].op))
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        if (before[i].allocates != after[i].allocates || before[i].frees != after[i].frees ||
            before[i].branch != after[i].branch || before[i].bodies.size() != after[i].bodies.size())
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        for (std::size_t body = 0; body < before[i].bodies.size(); ++body) {
            const auto result = compare(before[i].bodies[body], after[i].bodies[body], at);
            if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
        }
    }
    at = nullptr;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace simcuda::driver

// Waits for values and writes of them, between the structures of the API and a stream's operations.
#pragma once

#include <span>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class Context;

// Check everything before anything is given away. Throw Failure: CUDA_ERROR_INVALID_VALUE,
// CUDA_ERROR_NOT_SUPPORTED.
std::vector<Op> value_ops(const Context& context, std::span<const CUstreamBatchMemOpParams> items);

CUstreamBatchMemOpParams batch_item(const ValueOp& op);

}  // namespace simcuda::driver

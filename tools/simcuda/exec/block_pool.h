// Blocks between their uses: mapping stacks and a shared window costs system calls, touching them page
// faults.
#pragma once

#include <memory>

#include "tools/simcuda/exec/block.h"

namespace simcuda::exec {

// Thread-safe. Null when memory is short.
std::unique_ptr<Block> acquire_block(std::uint32_t threads, std::uint64_t stack_bytes);
void release_block(std::unique_ptr<Block> block);

}  // namespace simcuda::exec

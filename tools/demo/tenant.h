// A tenant of the GPU: holds memory so that another process finds the GPU small.
#pragma once

#include <cstddef>

namespace demo {

// Allocates all free memory of the GPU but `leave` bytes, says so in a line on stdout, and keeps it until
// stdin ends. Throws CudaError.
void hold_all_but(std::size_t leave);

}  // namespace demo

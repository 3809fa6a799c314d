// Clusters of blocks: what a kernel asks for, what a launch may have, and how many fit at once.
#pragma once

#include <array>

#include "tools/simcuda/driver/function.h"
#include "tools/simcuda/driver/launch.h"

namespace simcuda::driver {

using ClusterShape = std::array<unsigned, 3>;  // blocks; all 0: none is asked for

// That the kernel must be launched with, by its code or by cuFuncSetAttribute.
ClusterShape required_cluster(const Function& function);

// Of a launch of this shape. Throws Failure: CUDA_ERROR_NOT_SUPPORTED on a device before compute
// capability 9.0, CUDA_ERROR_INVALID_CLUSTER_SIZE for clusters that are not the kernel's, do not divide the
// grid, are too large or do not fit on the device.
ClusterShape cluster_of(const Function& function, const LaunchShape& shape);
void set_cluster(exec::Launch& launch, const ClusterShape& cluster);

// Clusters of so many blocks that are there at once, and the most blocks that one may have.
unsigned clusters_at_once(const Function& function, unsigned blocks, unsigned threads,
                          std::size_t dynamic_shared_bytes);
unsigned largest_cluster(const Function& function, unsigned threads, std::size_t dynamic_shared_bytes);

}  // namespace simcuda::driver

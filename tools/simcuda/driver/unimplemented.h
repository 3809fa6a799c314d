// Entry points that this driver does not implement.
#pragma once

namespace simcuda::driver {

// Counts the call, names the entry point on stderr the first time, and returns CUDA_ERROR_NOT_SUPPORTED.
// `entry` is an index into entries().
int unimplemented_entry(unsigned entry) noexcept;

}  // namespace simcuda::driver

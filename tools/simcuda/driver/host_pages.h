// Host memory that kernels can reach: the same pages at a host address and at that address on the kernels'
// side.
#pragma once

#include <cstdint>

#include "tools/simcuda/driver/physical.h"

namespace simcuda::driver {

// Maps the memory at a host address the system picks, and on the kernels' side. Throws Failure with
// CUDA_ERROR_OUT_OF_MEMORY.
std::uint64_t map_anywhere(const Physical& physical);
// Those on the kernels' side alone, where nothing else lies.
void unmap_alias(std::uint64_t address, std::uint64_t bytes);
void unmap_both(std::uint64_t address, std::uint64_t bytes);

// Replaces the pages of ordinary memory that [address, address + bytes) touches by shared ones with the same
// contents, mapped on the kernels' side too; unshare_pages() turns them back. Two ranges may share a page,
// not a byte. Another thread must not write there meanwhile. Throws Failure with CUDA_ERROR_INVALID_VALUE if
// not all of it is mapped, CUDA_ERROR_OUT_OF_MEMORY if there is no room.
void share_pages(std::uint64_t address, std::uint64_t bytes);
void unshare_pages(std::uint64_t address, std::uint64_t bytes);

}  // namespace simcuda::driver

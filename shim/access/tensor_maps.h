// Tensor maps: opaque descriptors of 128 bytes that programs pass among a kernel's arguments, or upload, and
// whose address need not show in their bytes. Each is noted when it is encoded and found again by its
// contents.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

#include "shim/access/pointer_scan.h"
#include "shim/device/cuda_api.h"

namespace lms::access {

// Thread-safe, for the process. What is noted is kept: some hundred bytes for each distinct map that hides
// its address.

// `map` was encoded for the memory at `address`.
void note_tensor_map(const CUtensorMap& map, engine::Address address);

// Appends the addresses of the maps among `data`, which lies at `offset` in a parameter block; maps are
// aligned to 64 bytes or more there. One load where none was noted.
void find_tensor_maps(const void* data, std::size_t offset, std::size_t bytes,
                      std::pmr::vector<engine::Address>& found);

}  // namespace lms::access

// Which addresses a launch's arguments hold. Pure: bytes in, addresses out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "shim/session/working_set.h"

namespace lms::engine {

// Appends each word of `data`, one parameter or a block of them, that is an address within `bounds`. The
// words begin at any byte: in packed structs pointers do too. What is an address by chance names a buffer too
// many, no more.
void scan(const void* data, std::size_t bytes, Bounds bounds, std::pmr::vector<core::Address>& found);

}  // namespace lms::engine

// Which addresses a launch's arguments hold. Pure: bytes in, addresses out.
#pragma once

#include <cstddef>
#include <cstring>

#include "shim/session/working_set.h"

namespace lms::engine {

// Calls found(at, address) for each word of `data`, one parameter or a block of them, that is an address
// within `bounds`. The words begin at any byte: in packed structs pointers do too. What is an address by
// chance names a buffer too many, no more.
template <typename Found>
void scan(const void* data, std::size_t bytes, Bounds bounds, Found&& found) {
    const char* block = static_cast<const char*>(data);
    for (std::size_t at = 0; at + sizeof(core::Address) <= bytes; ++at) {
        core::Address word;
        std::memcpy(&word, block + at, sizeof word);
        if (in(bounds, word)) found(at, word);
    }
}

}  // namespace lms::engine

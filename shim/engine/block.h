// A piece of physical memory, as the engine knows it: a value. Only the executor asks the driver about it.
#pragma once

#include <cstdint>

#include "shim/engine/chunk.h"

namespace lms::engine {

enum class Place : std::uint8_t { Device, Host };

// Copies go through `alias`, the block's own permanent address, never through the program's. So the program's
// address can be remapped while a copy runs.
struct Block {
    Place place = Place::Device;
    // Pinned host memory that no address can be mapped to: `alias` is its host pointer, and it has no handle.
    bool pinned = false;
    std::uint32_t era = 0;  // of a pinned one: BlockPool::begin_era()
    // The same of memory that is not pinned, for there is no context to pin it in. It is of no pool.
    bool unpinned = false;
    unsigned long long handle = 0;  // the driver's
    Address alias = 0;
    std::uint64_t bytes = 0;
};

}  // namespace lms::engine

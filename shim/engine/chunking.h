// How an allocation is cut into chunks.
#pragma once

#include <cstdint>
#include <vector>

namespace lms::engine {

// The largest chunk for a GPU of `budget_bytes`: large enough that the cost of a remap (the same whatever its
// size) is spread over many bytes, small enough that 64 of them fit. A power of two times `granularity`, at
// most 16 times it: 32 MiB on real GPUs.
std::uint64_t largest_chunk(std::uint64_t budget_bytes, std::uint64_t granularity);

// Chunk sizes in bytes, largest first, that sum to `bytes` rounded up to `granularity`. Each is a power of
// two times granularity, so that a physical block freed by one allocation fits another.
std::vector<std::uint64_t> cut(std::uint64_t bytes, std::uint64_t granularity, std::uint64_t largest);

}  // namespace lms::engine

// What the residency map asks of a policy. policy/host.h implements it over the plugin ABI in <lms/policy.h>.
#pragma once

#include <cstdint>
#include <functional>

#include "shim/core/chunk.h"

namespace lms::core {

// Called with the session's lock held, never concurrently.
class Ranking {
  public:
    virtual ~Ranking() = default;

    virtual void added(ChunkId chunk, std::uint64_t bytes, AllocationId allocation) = 0;
    virtual void removed(ChunkId chunk) = 0;
    virtual void used(ChunkId chunk) = 0;
    virtual void resident(ChunkId chunk) = 0;  // came in
    virtual void evicted(ChunkId chunk) = 0;   // went out

    // The chunk to evict next when `need_bytes` are wanted; kNoChunk when no resident chunk is eligible.
    virtual ChunkId next_victim(std::uint64_t need_bytes, const std::function<bool(ChunkId)>& eligible) = 0;

    // Resident bytes above which eviction may begin, given the budget and the managed bytes allocated.
    virtual std::uint64_t eviction_start(std::uint64_t budget_bytes, std::uint64_t allocated_bytes) = 0;
};

}  // namespace lms::core

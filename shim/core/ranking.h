// What the residency map asks of a policy. policy/host.h implements it over the plugin ABI in <lms/policy.h>.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "shim/core/chunk.h"

namespace lms::core {

// What a victim is for (<lms/policy.h> says more): room for what is needed now; whose work to wait for; room
// for `sooner`, which is foretold.
enum class Purpose : std::uint32_t { Room, Wait, Ahead };

struct VictimRequest {
    std::uint64_t need_bytes;
    Purpose purpose = Purpose::Room;
    ChunkId sooner = kNoChunk;
};

// Called with the session's lock held, never concurrently.
class Ranking {
  public:
    virtual ~Ranking() = default;

    virtual void added(ChunkId chunk, std::uint64_t bytes, AllocationId allocation) = 0;
    virtual void freed(ChunkId chunk) = 0;  // by the program; removed() follows
    virtual void removed(ChunkId chunk) = 0;
    virtual void used(ChunkId chunk) = 0;      // by something else than work()
    virtual void resident(ChunkId chunk) = 0;  // came in
    virtual void evicted(ChunkId chunk) = 0;   // went out

    // A piece of work named these, which so are used.
    virtual void work(std::span<const ChunkId> chunks) = 0;

    // The chunk to evict next; kNoChunk when no resident chunk is eligible, or none is to go for that
    // purpose.
    virtual ChunkId next_victim(const VictimRequest& wanted,
                                const std::function<bool(ChunkId)>& eligible) = 0;
    // Writes to `out` which chunks that are not resident will be named next, soonest first; how many.
    virtual std::size_t upcoming(std::span<ChunkId> out) = 0;

    // Resident bytes above which eviction may begin, given the budget and the managed bytes allocated.
    virtual std::uint64_t eviction_start(std::uint64_t budget_bytes, std::uint64_t allocated_bytes) = 0;
};

}  // namespace lms::core

// What the residency map asks of a policy. policy/host.h implements it over the plugin ABI in <lms/policy.h>.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "shim/engine/chunk.h"

namespace lms::engine {

// What a victim is for (<lms/policy.h> says more): room for what is needed now; whose work to wait for; room
// for `sooner`, which is foretold; room that is foretold to be lacking.
enum class Purpose : std::uint32_t { Room, Wait, Ahead, Foretold };

// Whether something has to go: where the policy names no victim, another is taken.
inline bool must_go(Purpose purpose) {
    return purpose == Purpose::Room || purpose == Purpose::Wait;
}

// What a policy may ask back of a chunk that may go, and of the copies that are under way.
struct Candidate {
    static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

    std::uint64_t bytes = 0;
    bool clean = false;                   // goes without a copy: one is kept on the host
    std::uint64_t idle_in_ns = kUnknown;  // 0: nothing unfinished uses it
};
struct Links {
    static constexpr std::uint64_t kNever = ~std::uint64_t{0};

    std::uint64_t queued_in_bytes = 0, queued_out_bytes = 0;  // not seen to be complete
    std::uint64_t in_bytes_per_s = 0, out_bytes_per_s = 0;    // 0: not known
    // Works submitted since the GPU had nothing to run for want of what was to come in.
    std::uint64_t works_since_wait = kNever;  // it always had some
};

// Who wants a victim.
class Asker {
  public:
    virtual ~Asker() = default;
    virtual Candidate candidate(ChunkId chunk) = 0;  // of one that is gone: no bytes
    virtual Links links() = 0;
    // The policy named none, or one that may not go, and something else is taken.
    virtual void overruled() = 0;
};

struct VictimRequest {
    std::uint64_t need_bytes;
    Purpose purpose = Purpose::Room;
    ChunkId sooner = kNoChunk;
    Asker* asker = nullptr;  // null: nothing is known
};

// A chunk that there is from now on. Those of an allocation follow one another, by offset.
struct Added {
    ChunkId chunk;
    std::uint64_t bytes;
    AllocationId allocation;
    Address address = 0;
    std::uint64_t offset = 0;  // in the allocation
    std::uint64_t allocation_bytes = 0;
};

// How work touches a chunk, as far as that is known: not at all known, or one of two; and all of it.
inline constexpr std::uint8_t kAccessUnknown = 0, kAccessRead = 1, kAccessWritten = 2, kAccessWhole = 4;

struct WorkFacts {
    std::uint64_t stream;                  // a number of its own for as long as it lives
    std::uint64_t code;                    // the same for the same kernel or graph; 0: neither
    std::span<const std::uint8_t> access;  // of each chunk
};

// Called with the session's lock held, never concurrently.
class Ranking {
  public:
    virtual ~Ranking() = default;

    virtual void added(const Added& chunk) = 0;
    virtual void freed(ChunkId chunk) = 0;  // by the program; removed() follows
    virtual void removed(ChunkId chunk) = 0;
    virtual void used(ChunkId chunk) = 0;      // by something else than work()
    virtual void resident(ChunkId chunk) = 0;  // came in
    virtual void evicted(ChunkId chunk) = 0;   // went out

    // Whether `facts` are looked at: else null may be given, which costs less.
    bool wants_facts() const { return wants_facts_; }
    // A piece of work named these, which so are used.
    virtual void work(std::span<const ChunkId> chunks, const WorkFacts* facts) = 0;

    // The chunk to evict next; kNoChunk when no resident chunk is eligible, or none is to go for that
    // purpose.
    virtual ChunkId next_victim(const VictimRequest& wanted,
                                const std::function<bool(ChunkId)>& eligible) = 0;
    // Writes to `out` which chunks that are not resident will be named next, soonest first; how many.
    virtual std::size_t upcoming(std::span<ChunkId> out) = 0;

    // Resident bytes above which eviction may begin, given the budget and the managed bytes allocated.
    virtual std::uint64_t eviction_start(std::uint64_t budget_bytes, std::uint64_t allocated_bytes) = 0;

  protected:
    explicit Ranking(bool wants_facts = false) : wants_facts_(wants_facts) {}

  private:
    const bool wants_facts_;
};

}  // namespace lms::engine

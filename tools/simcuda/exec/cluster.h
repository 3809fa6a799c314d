// The blocks of a cluster: in flight side by side on one host thread, so that nothing here needs a lock.
#pragma once

#include <array>
#include <cstdint>

namespace simcuda::exec {

class Block;

inline constexpr std::uint32_t kMaxCluster = 16;

// A block that was launched without is a cluster of its own.
struct Cluster {
    std::uint32_t size = 0;
    std::array<Block*, kMaxCluster> blocks{};         // by rank
    std::array<std::uint64_t, kMaxCluster> shared{};  // the host address of the shared memory of each
    std::uint32_t running = 0;                        // blocks that have not ended

    // barrier.cluster
    std::uint32_t live = 0;     // threads that have not ended, of all
    std::uint32_t arrived = 0;  // in this phase
    std::uint64_t phase = 0;
    bool met = false;              // a phase has ended, and nobody has taken note
    std::uint32_t idle_turns = 0;  // turns of blocks, one after another, in which no thread could run

    void add(Block& block, std::uint64_t shared_address, std::uint32_t threads);
    // Ends the phase if all live threads have arrived: whoever waits for that goes on.
    void recheck();
};

}  // namespace simcuda::exec

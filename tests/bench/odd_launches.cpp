// odd_launches CHUNKS LAUNCHES: what next-use is told and asked of a program in half the memory that it
// takes. Launches name four chunks each in turn; one in 20 names any four.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "policy/host.h"

int main(int argc, char** argv) {
    if (argc != 3) return 1;
    const auto chunks = static_cast<unsigned>(std::atoi(argv[1]));
    const auto host = lms::policy::Host::create("next-use", {}, 0);
    std::vector<bool> there(chunks);
    for (unsigned i = 0; i < chunks; ++i) {
        host->added({i, 4096, 0, 0, 0, 4096});
        if (i % 2 == 0) continue;
        there[i] = true;
        host->resident(i);
    }
    std::mt19937 random(1);
    std::vector<lms::engine::ChunkId> named(4);
    unsigned next = 0;
    for (int left = std::atoi(argv[2]); left > 0; --left) {
        const bool odd = random() % 20 == 0;
        for (auto& chunk : named) chunk = (odd ? random() : next++) % chunks;
        host->work(named, nullptr);
        for (const auto chunk : named) {
            if (there[chunk]) continue;
            const auto victim = host->next_victim(
                {1}, [&](auto id) { return there[id] && std::ranges::find(named, id) == named.end(); });
            if (victim == lms::engine::kNoChunk) return 1;
            there[victim] = false;
            host->evicted(victim);
            there[chunk] = true;
            host->resident(chunk);
        }
    }
}

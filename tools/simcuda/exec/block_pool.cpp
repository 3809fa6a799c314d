// A short list of unused blocks.
#include "tools/simcuda/exec/block_pool.h"

#include <mutex>
#include <vector>

namespace simcuda::exec {
namespace {

constexpr std::size_t kKept = 16;

struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<Block>> unused;
};

// Never destroyed: workers may outlive static destructors.
Pool& pool() {
    static auto* const instance = new Pool;
    return *instance;
}

}  // namespace

std::unique_ptr<Block> acquire_block(std::uint32_t threads, std::uint64_t stack_bytes) {
    {
        std::lock_guard lock(pool().mutex);
        auto& unused = pool().unused;
        for (auto candidate = unused.rbegin(); candidate != unused.rend(); ++candidate) {
            if (!(*candidate)->fits(threads, stack_bytes)) continue;
            std::unique_ptr<Block> block = std::move(*candidate);
            unused.erase(std::next(candidate).base());
            return block;
        }
    }
    return Block::create(threads, stack_bytes);
}

void release_block(std::unique_ptr<Block> block) {
    std::lock_guard lock(pool().mutex);
    auto& unused = pool().unused;
    if (unused.size() == kKept) unused.erase(unused.begin());
    unused.push_back(std::move(block));
}

}  // namespace simcuda::exec

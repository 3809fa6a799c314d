#include "shim/engine/block_pool.h"

namespace lms::engine {

std::optional<Block> BlockPool::take(std::uint64_t bytes) {
    const auto it = free_.find(bytes);
    if (it == free_.end() || it->second.empty()) return std::nullopt;
    const Block block = it->second.back();
    it->second.pop_back();
    free_bytes_ -= bytes;
    return block;
}

void BlockPool::put(const Block& block) {
    if (block.unpinned) {
        unpinned_.push_back(block);
        return;
    }
    free_[block.bytes].push_back(block);
    free_bytes_ += block.bytes;
}

std::vector<Block> BlockPool::take_for_driver(std::uint64_t bytes) {
    std::vector<Block> taken;
    std::uint64_t sum = 0;
    for (auto it = free_.rbegin(); it != free_.rend() && sum < bytes; ++it) {
        while (!it->second.empty() && sum < bytes) {
            taken.push_back(it->second.back());
            it->second.pop_back();
            sum += it->first;
        }
    }
    free_bytes_ -= sum;
    return taken;
}

void BlockPool::abandon() {
    held_bytes_ -= free_bytes_;
    free_bytes_ = 0;
    free_.clear();
}

}  // namespace lms::engine

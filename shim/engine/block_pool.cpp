#include "shim/engine/block_pool.h"

#include <algorithm>

namespace lms::engine {

std::optional<Block> BlockPool::take(std::uint64_t bytes) {
    const auto it = free_.find(bytes);
    if (it == free_.end() || it->second.empty()) return std::nullopt;
    const Block block = it->second.back();
    it->second.pop_back();
    free_bytes_ -= bytes;
    idle_bytes_ = std::min(idle_bytes_, free_bytes_);
    return block;
}

void BlockPool::put(const Block& block) {
    if (block.unpinned) {
        unpinned_.push_back(block);
        return;
    }
    if (has_ended(block)) return given_back(block.bytes);
    if (block.pinned && block.era != era_) {
        of_earlier_eras_.push_back(block);
        return;
    }
    free_[block.bytes].push_back(block);
    free_bytes_ += block.bytes;
}

std::vector<Block> BlockPool::take_for_driver(std::uint64_t bytes, bool at_most) {
    std::vector<Block> taken = std::exchange(of_earlier_eras_, {});
    std::uint64_t sum = 0;
    for (auto it = free_.rbegin(); it != free_.rend() && sum < bytes; ++it) {
        while (!it->second.empty() && sum < bytes && (!at_most || it->first <= bytes - sum)) {
            taken.push_back(it->second.back());
            it->second.pop_back();
            sum += it->first;
        }
    }
    free_bytes_ -= sum;
    idle_bytes_ = std::min(idle_bytes_, free_bytes_);
    return taken;
}

void BlockPool::begin_era() {
    ++era_;
    free_bytes_ = idle_bytes_ = 0;
    for (const auto& [bytes, blocks] : std::exchange(free_, {}))
        std::ranges::for_each(blocks, [&](const Block& each) { put(each); });
}

void BlockPool::end_earlier_eras() {
    first_era_ = era_;
    for (const Block& block : std::exchange(of_earlier_eras_, {})) put(block);
}

}  // namespace lms::engine

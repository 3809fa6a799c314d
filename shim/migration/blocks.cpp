#include "shim/migration/blocks.h"

#include <cstdlib>
#include <utility>

namespace lms::engine {
namespace {

// Drivers refuse within microseconds; but under WSL access to memory of which there is enough was seen not to
// become ready, which is tried for a second (device/port).
constexpr auto kSlow = std::chrono::milliseconds(500);
constexpr int kTimesAsLong = 20;  // until it is asked again: little of the time goes into that

}  // namespace

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
        std::free(reinterpret_cast<void*>(block.alias));
        return;
    }
    free_[block.bytes].push_back(block);
    free_bytes_ += block.bytes;
}

CUresult BlockPool::create(std::uint64_t bytes, Block& block, SessionLock& lock) {
    if (held_bytes_ + bytes >= refused_at_bytes_ && Clock::now() < refused_until_)
        return CUDA_ERROR_OUT_OF_MEMORY;
    Block made{place_, pinned(), false, 0, 0, bytes};
    if (!pinned()) {
        const auto alias = aliases_.take(bytes);
        if (!alias) return CUDA_ERROR_OUT_OF_MEMORY;
        made.alias = *alias;
    }
    held_bytes_ += bytes;
    const Clock::time_point begin = Clock::now();
    const CUresult status = unlocked(lock, [&] { return make(made); });
    if (status == CUDA_SUCCESS) {
        block = made;
        return status;
    }
    note_refusal(Clock::now() - begin);
    held_bytes_ -= bytes;
    if (!pinned()) aliases_.give_back(made.alias, bytes);
    return status;
}

void BlockPool::note_refusal(Clock::duration took) {
    if (took < kSlow) return;
    refused_at_bytes_ = held_bytes_;
    refused_until_ = Clock::now() + kTimesAsLong * took;
}

CUresult BlockPool::make(Block& block) {
    if (pinned()) return port_.pin(block.bytes, block.alias);
    CUresult status = port_.create(block.bytes, place_, block.handle);
    if (status != CUDA_SUCCESS) return status;
    status = port_.map(block.alias, block.bytes, block.handle, place_);
    if (status != CUDA_SUCCESS) port_.release(block.handle);
    return status;
}

bool BlockPool::destroy(const Block& block) {
    if (pinned()) return port_.unpin(block.alias) == CUDA_SUCCESS;
    const bool unmapped = port_.discard(block.alias, block.bytes) == CUDA_SUCCESS;
    return port_.release(block.handle) == CUDA_SUCCESS && unmapped;
}

std::uint64_t BlockPool::trim(std::uint64_t bytes, SessionLock& lock) {
    std::vector<Block> gone;
    std::uint64_t chosen = 0;
    // Largest first: fewest calls.
    for (auto it = free_.rbegin(); it != free_.rend() && chosen < bytes; ++it) {
        while (!it->second.empty() && chosen < bytes) {
            gone.push_back(it->second.back());
            it->second.pop_back();
            chosen += it->first;
        }
    }
    free_bytes_ -= chosen;
    std::vector<Block> lost;
    unlocked(lock, [&] {
        std::erase_if(gone, [&](const Block& block) {
            if (destroy(block)) return false;
            lost.push_back(block);
            return true;
        });
    });
    lost_.insert(lost_.end(), lost.begin(), lost.end());
    return note_gone(gone);
}

std::uint64_t BlockPool::note_gone(std::span<const Block> gone) {
    std::uint64_t given = 0;
    for (const Block& block : gone) {
        given += block.bytes;
        if (!pinned()) aliases_.give_back(block.alias, block.bytes);
    }
    held_bytes_ -= given;
    return given;
}

void BlockPool::lose(std::span<const Block> blocks, SessionLock& lock) {
    unlocked(lock, [&] {
        for (const Block& block : blocks) destroy(block);
    });
    lost_.insert(lost_.end(), blocks.begin(), blocks.end());
}

std::uint64_t BlockPool::recover(SessionLock& lock) {
    if (lost_.empty()) return 0;
    std::vector<Block> lost = std::exchange(lost_, {});
    std::vector<Block> gone;
    unlocked(lock, [&] {
        if (pinned()) {
            std::erase_if(lost, [&](const Block& block) {
                if (!destroy(block)) return false;
                gone.push_back(block);
                return true;
            });
        } else if (port_.settle()) {
            gone.swap(lost);
        }
    });
    lost_.insert(lost_.end(), lost.begin(), lost.end());
    return note_gone(gone);
}

void BlockPool::abandon() {
    held_bytes_ -= free_bytes_;
    for (const Block& block : std::exchange(lost_, {})) held_bytes_ -= block.bytes;
    free_bytes_ = 0;
    free_.clear();
}

}  // namespace lms::engine

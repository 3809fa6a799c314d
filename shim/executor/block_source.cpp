#include "shim/executor/block_source.h"

#include <cstdlib>
#include <utility>

namespace lms::executor {
namespace {

// Drivers refuse within microseconds; but under WSL access to memory of which there is enough was seen not to
// become ready, which is tried for a second (device/port).
constexpr auto kSlow = std::chrono::milliseconds(500);
constexpr int kTimesAsLong = 20;  // until it is asked again: little of the time goes into that

}  // namespace

CUresult BlockSource::create(std::uint64_t bytes, Block& block, SessionLock& lock) {
    if (held_bytes() + bytes >= refused_at_bytes_ && Clock::now() < refused_until_)
        return CUDA_ERROR_OUT_OF_MEMORY;
    Block made{.place = place_, .pinned = pinned(), .era = pool_.era(), .bytes = bytes};
    if (!pinned()) {
        const auto alias = aliases_.take(bytes);
        if (!alias) return CUDA_ERROR_OUT_OF_MEMORY;
        made.alias = *alias;
    }
    pool_.begin_create(bytes);
    ++pins_;
    const Clock::time_point begin = Clock::now();
    const CUresult status = unlocked(lock, [&] { return make(made); });
    --(made.era == pool_.era() ? pins_ : pins_before_era_);
    if (status == CUDA_SUCCESS) {
        block = made;
        return status;
    }
    note_refusal(Clock::now() - begin);
    pool_.create_failed(bytes);
    if (!pinned()) aliases_.give_back(made.alias, bytes);
    return status;
}

void BlockSource::note_refusal(Clock::duration took) {
    if (took < kSlow) return;
    refused_at_bytes_ = held_bytes();
    refused_until_ = Clock::now() + kTimesAsLong * took;
}

CUresult BlockSource::make(Block& block) {
    if (pinned()) return port_.pin(block.bytes, block.alias);
    CUresult status = port_.create(block.bytes, place_, block.handle);
    if (status != CUDA_SUCCESS) return status;
    status = port_.map(block.alias, block.bytes, block.handle, place_);
    if (status != CUDA_SUCCESS) port_.release(block.handle);
    return status;
}

bool BlockSource::destroy(const Block& block) {
    if (pinned()) return port_.unpin(block.alias) == CUDA_SUCCESS;
    const bool unmapped = port_.discard(block.alias, block.bytes) == CUDA_SUCCESS;
    return port_.release(block.handle) == CUDA_SUCCESS && unmapped;
}

std::uint64_t BlockSource::trim(std::uint64_t bytes, SessionLock& lock, bool at_most) {
    std::vector<Block> gone = pool_.take_for_driver(bytes, at_most);
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

std::uint64_t BlockSource::note_gone(std::span<const Block> gone) {
    std::uint64_t given = 0;
    for (const Block& block : gone) {
        given += block.bytes;
        if (!pinned()) aliases_.give_back(block.alias, block.bytes);
    }
    pool_.given_back(given);
    return given;
}

void BlockSource::lose(std::span<const Block> blocks, SessionLock& lock) {
    unlocked(lock, [&] {
        for (const Block& block : blocks) destroy(block);
    });
    lost_.insert(lost_.end(), blocks.begin(), blocks.end());
}

std::uint64_t BlockSource::recover(SessionLock& lock) {
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

void BlockSource::begin_era() {
    pool_.begin_era();
    pins_before_era_ += std::exchange(pins_, 0);
}

void BlockSource::end_earlier_eras() {
    pool_.end_earlier_eras();
    std::erase_if(lost_, [&](const Block& block) {
        const bool ended = pool_.has_ended(block);
        if (ended) pool_.given_back(block.bytes);
        return ended;
    });
}

void BlockSource::free_unpinned() {
    for (const Block& block : pool_.take_unpinned()) std::free(reinterpret_cast<void*>(block.alias));
}

}  // namespace lms::executor

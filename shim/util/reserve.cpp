#include "shim/util/reserve.h"

#include <cstdlib>

namespace lms::util {

constinit Reserve reserve{};

// The first that fits: it is used for moments, by few, and need not be fast.
void* Reserve::take(std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes > kBytes || alignment > kAlignment) return nullptr;
    const auto wanted = static_cast<std::uint32_t>(bytes == 0 ? 1 : (bytes + kAlignment - 1) / kAlignment);
    const std::scoped_lock lock(mutex_);
    std::size_t at = 0;
    while (at < end_) {
        Run& run = runs_[at];
        for (std::size_t next = at + run.cells; !run.used && next < end_ && !runs_[next].used;
             next = at + run.cells)
            run.cells += runs_[next].cells;
        if (!run.used && run.cells >= wanted) break;
        at += run.cells;
    }
    if (at < end_) {
        if (const std::uint32_t more = runs_[at].cells - wanted; more > 0) runs_[at + wanted] = {more, false};
    } else if (kCells - end_ < wanted) {
        return nullptr;
    } else {
        end_ += wanted;
    }
    runs_[at] = {wanted, true};
    used_ += wanted;
    return memory_.data() + at * kAlignment;
}

void Reserve::give_back(void* place) noexcept {
    const std::scoped_lock lock(mutex_);
    Run& run = runs_[offset_of(place) / kAlignment];
    run.used = false;
    used_ -= run.cells;
    if (used_ == 0) end_ = 0;
}

bool out_of_memory() noexcept {
    // What a call that takes something may need.
    constexpr std::size_t kCall = 64 << 10;
    if (reserve.used_bytes() == 0) return false;
    void* const more = std::malloc(kCall);
    std::free(more);
    return !more;
}

}  // namespace lms::util

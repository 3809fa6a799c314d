// LMS_SOFT_LIMIT. The caching allocators of frameworks keep what their program freed, and such dead memory
// looks like any other: it is moved out and in again. They give it back only when an allocation fails, and
// then try once more. So an allocation beyond the soft limit fails once. Where the program needs more all the
// same, the limit follows by steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace lms::engine {

// Pure; the session's lock guards it.
class SoftLimit {
  public:
    // Off without a limit.
    explicit SoftLimit(std::optional<std::uint64_t> bytes)
        : mark_(bytes.value_or(UINT64_MAX)), step_(std::max<std::uint64_t>(mark_ / 8, 1)) {}

    // Whether `caller`'s allocation of `bytes`, with `allocated_bytes` in use, is to fail for once. The next
    // one of the same thread is served, whatever others took meanwhile: a second failure in a row would end
    // the program. If it is still beyond the mark, that moves up to the step that holds it. The sum of both
    // sizes must not overflow.
    bool refuses(std::uint64_t allocated_bytes, std::uint64_t bytes, std::thread::id caller) {
        const auto retry = std::find(refused_.begin(), refused_.end(), caller);
        const std::uint64_t beyond = allocated_bytes + bytes;
        if (retry == refused_.end()) {
            if (beyond <= mark_) return false;
            refused_.push_back(caller);
            return true;
        }
        refused_.erase(retry);
        if (beyond > mark_) mark_ += (beyond - mark_ + step_ - 1) / step_ * step_;
        return false;
    }

    // Some thread has not tried again.
    bool awaits_retry() const { return !refused_.empty(); }

  private:
    std::uint64_t mark_;  // allocations up to here are served
    const std::uint64_t step_;
    std::vector<std::thread::id> refused_;  // threads whose last allocation was
};

}  // namespace lms::engine

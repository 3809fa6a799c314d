// Threads between acquire() and submitted().
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lms::engine {

// Each holds chunks, and may stand in the driver for as long as the program makes it: in a synchronous copy
// behind a gate, or before a full launch queue. Guarded by the session's lock.
class Submissions {
  public:
    struct One {
        std::uint64_t number;  // never given twice; 0 is none's
        bool opaque;           // its work may reach any chunk
        bool unseen;           // its work may write chunks that it does not name
    };

    std::uint64_t begin(bool opaque, bool unseen) {
        under_way_.push_back({++begun_, opaque, unseen});
        return begun_;
    }
    void end(std::uint64_t number) {
        std::erase_if(under_way_, [&](const One& one) { return one.number == number; });
    }

    std::uint64_t begun() const { return begun_; }  // ever
    bool any() const { return !under_way_.empty(); }
    bool any_opaque() const { return std::ranges::any_of(under_way_, &One::opaque); }
    bool any_unseen() const { return std::ranges::any_of(under_way_, &One::unseen); }
    std::span<const One> under_way() const { return under_way_; }

  private:
    std::vector<One> under_way_;  // oldest first
    std::uint64_t begun_ = 0;
};

}  // namespace lms::engine

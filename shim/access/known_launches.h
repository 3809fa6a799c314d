// What launches of one kernel were found to reach, by their arguments, for programs repeat themselves.
// Addresses become chunks at each launch anew.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shim/code/ptx_bounds.h"
#include "shim/session/working_set.h"
#include "shim/util/mutex.h"

namespace lms::access {

// Thread-safe.
class KnownLaunches {
  public:
    // What a launch is known by.
    struct Launch {
        static constexpr std::size_t kMostWords = 64;

        std::uint64_t changes;  // memory_changes, before anything was looked at
        code::LaunchShape shape;
        session::Bounds tables;
        std::array<std::uint64_t, kMostWords> words;  // its arguments
        std::size_t count = 0;

        std::span<const std::uint64_t> arguments() const { return {words.data(), count}; }
        std::size_t hash() const;
    };

    // Whether nothing has changed since the last call, so that it is worth the while to look here.
    bool is_settled(std::uint64_t changes) {
        if (changes_.load(std::memory_order_relaxed) == changes) [[likely]]
            return true;
        changes_.store(changes, std::memory_order_relaxed);
        return false;
    }
    // To `reach`, which has nothing yet: what a launch of the same arguments reached. False: none is known
    // that is still right.
    bool find(const Launch& launch, session::WorkingSet& reach);
    // `reach` has what the arguments lead to, and no more. Kept from the second time on: of arguments that
    // never come again, as a step's number is, nothing would be gained.
    void keep(const Launch& launch, const session::WorkingSet& reach);

  private:
    static constexpr std::size_t kSlots = 256;

    struct Known {
        std::uint64_t changes;
        code::LaunchShape shape;
        session::Bounds tables;
        std::vector<std::uint64_t> arguments;
        std::vector<engine::Address> addresses, only_read;
        std::vector<session::Range> ranges;
        bool opaque, unseen;

        bool is(const Launch& launch) const;
    };

    std::atomic<std::uint64_t> changes_{0};
    struct Slot {
        std::size_t missed = 0;  // the hash of who was not found here last
        std::unique_ptr<const Known> known;
    };

    util::Mutex mutex_{util::LockOrder::Leaf};
    std::vector<Slot> slots_ LMS_GUARDED_BY(mutex_);  // by hash; none before the first
};

}  // namespace lms::access

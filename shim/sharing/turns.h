// Which process's work goes to a GPU if its links do not carry what all would move. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/sharing/tenant.h"

namespace lms::sharing {

inline constexpr std::size_t kNoTenant = ~std::size_t{0};

// A turn is so many times as long as a change of turns: at most a tenth is lost. A change takes as long as
// bringing in what the holder lacks, and kSwitch: others see it at their next look, and then make room.
inline constexpr std::uint64_t kTurnFactor = 9;
inline constexpr std::chrono::nanoseconds kSwitch = std::chrono::milliseconds(8);
inline constexpr std::chrono::nanoseconds kLongestTurn = std::chrono::seconds(30);
// A holder that has not used the GPU for so long gives its turn to one that waits.
inline constexpr std::chrono::nanoseconds kUnusedTurn = std::chrono::milliseconds(30);
// A holder that often pauses for so long (TurnUse) gives its turn up after a pause of kShortestPause at the
// earliest.
inline constexpr std::chrono::nanoseconds kShortestPause = std::chrono::milliseconds(1);

struct Turn {
    std::size_t holder = kNoTenant;  // an index
    std::uint64_t began_ns = 0;      // CLOCK_MONOTONIC
    std::uint64_t length_ns = 0;
    bool operator==(const Turn&) const = default;
};

// A turn in one word, for a page (page.h): `holder` is below 255, times are rounded down to milliseconds. Of
// a word that says nothing, or of a time after `now_ns`, there is no holder.
std::uint64_t word_of(const Turn& turn);
Turn turn_of(std::uint64_t word, std::uint64_t now_ns);

// Whether a process still uses its turn, as the process itself sees: a pause ends the turn that is longer
// than those within its work. The longest pause allowed is halved by each pause of kUnusedTurn or more, which
// ends the turn anyway. A shorter pause raises it to twice its own length.
class TurnUse {
  public:
    // A look: whether the GPU has been in use since the last one, and whether the process has the turn.
    void note(bool in_use, bool holds_turn, std::uint64_t now_ns);
    bool is_over(std::uint64_t now_ns) const;

  private:
    std::uint64_t unused_since_ns_ = 0;  // 0: in use, or the pause began without the turn
    std::uint64_t longest_pause_ns_ = static_cast<std::uint64_t>(kUnusedTurn.count());
};

// `link_bytes_per_s`: to the GPU; 0: not known.
std::uint64_t turn_length_ns(std::uint64_t missing_bytes, std::uint64_t link_bytes_per_s);

// A tenant that waits looks all the time. One that has not for kIdle was stopped, or went on without a look:
// it counts as one that does not wait.
void end_stale_waits(std::span<Tenant> tenants, std::uint64_t now_ns);

// Which of those that wait comes next, beside the holder: the one of the highest priority that has waited
// longest; kNoTenant: none waits.
std::size_t next_tenant(std::span<const Tenant> tenants, std::size_t holder = kNoTenant);

// The first turn, where turns began at `turns_began_ns`: of those that use the GPU and lack memory of it, the
// one of the highest priority that came last, for those before it have had the GPU. `now` where it has been
// given.
Turn first_turn(const Turn& now, std::span<const Tenant> tenants, std::uint64_t capacity_bytes,
                std::uint64_t link_bytes_per_s, std::uint64_t turns_began_ns, std::uint64_t now_ns);

// The turn from now on: as it is, or of another, by weight as long as bringing in takes what one of those
// that want it lacks at most. It ends early where its holder does not use it, or has ended
// (kNoTenant), or is of lower priority than one that waits.
Turn turn_at(const Turn& now, std::span<const Tenant> tenants, std::uint64_t capacity_bytes,
             std::uint64_t link_bytes_per_s, std::uint64_t now_ns);

}  // namespace lms::sharing

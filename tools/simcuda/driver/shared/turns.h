// In the machine's time: how processes share the links of a GPU and its multiprocessors.
#pragma once

#include <cstdint>

#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/shared/page.h"

namespace simcuda::driver::shared {

struct Link {
    std::size_t device = 0;
    bool up = true;  // to the device
};

// Takes the link for `ns` from `from` on, behind what others have taken. Returns the end; by now_ns().
std::uint64_t take_link(const Link& link, std::uint64_t from, std::uint64_t ns);

// The multiprocessors of a device are one process's at a time, for kSliceNs while others wait. Its kernels
// run beside each other.
inline constexpr std::uint64_t kSliceNs = 2'000'000;

// Whether a process may run a kernel now, that has said so in its Slot::kernels. Frees a turn that is over
// for the next slot that has kernels. Under the page's lock.
bool take_turn(Page& page, std::size_t device, const Slot& slot, std::uint64_t now_ns);

// A kernel that runs, or a thread that helps it. It holds up none: a kernel may wait for another process's,
// and one that does not come to the end of a block runs on when its turn is over.
class Turn {
  public:
    explicit Turn(std::size_t device);  // waits for the first turn
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Between two blocks: waits for the next turn if this is over.
    void pause();
    // The kernel takes at least that long, of its turns.
    void last(std::uint64_t least_ns);

  private:
    void enter();
    void leave();

    const std::size_t device_;
    std::uint64_t entered_ns_ = 0, until_ns_ = kNoEnd;  // of this turn
    std::uint64_t had_ns_ = 0;                          // of turns before
};

}  // namespace simcuda::driver::shared

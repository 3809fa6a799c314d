// While everything fits nothing moves, and work goes to the driver without a look at what it reaches. This is
// what a launch costs then: two counts and a comparison.
#pragma once

#include <atomic>
#include <cstdint>

namespace lms::engine {

// One for the process, for work may reach the buffers of every GPU. Any thread.
class CalmGate {
  public:
    // Whether work may be submitted without a look; leave() follows then, once it is submitted.
    bool enter() {
        inside_.fetch_add(1);
        if (closed_.load() == 0) [[likely]]
            return true;
        inside_.fetch_sub(1);
        return false;
    }
    void leave() { inside_.fetch_sub(1); }

    // A session looks at all work from here on. What entered before may still be inside; see busy().
    void close() { closed_.fetch_add(1); }
    // The session that closed it is gone.
    void reopen() { closed_.fetch_sub(1); }
    // Whether some thread is between enter() and leave().
    bool busy() const { return inside_.load() > 0; }

  private:
    std::atomic<std::uint32_t> closed_{0};
    std::atomic<std::uint32_t> inside_{0};
};

inline constinit CalmGate calm_gate;

}  // namespace lms::engine

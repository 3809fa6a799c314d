// While everything fits nothing moves, and work goes to the driver without a look at what it reaches. This is
// what a launch costs then: two additions and a comparison.
#pragma once

#include <atomic>
#include <cstdint>

namespace lms::program {

// One for the process, for work may reach the buffers of every GPU. Any thread.
class FastPathGate {
  public:
    // Whether work may be submitted without a look; leave() follows then, once it is submitted.
    bool enter() {
        if (word_.fetch_add(1) < kClosed) [[likely]]
            return true;
        word_.fetch_sub(1);
        return false;
    }
    void leave() { word_.fetch_sub(1); }
    // Whether enter() would let work in now.
    bool is_open() const { return word_.load() < kClosed; }

    // A session looks at all work from here on. What entered before may still be inside; see busy().
    void close() { word_.fetch_add(kClosed); }
    // The session that closed it is gone.
    void reopen() { word_.fetch_sub(kClosed); }
    // Whether some thread may be between enter() and leave(). It is wrong, for a moment, about threads that
    // find the gate closed; it is never wrong about those that found it open.
    bool busy() const { return word_.load() % kClosed > 0; }

  private:
    static constexpr std::uint64_t kClosed = std::uint64_t{1} << 32;

    // How many sessions have closed it, and how many threads are inside. One word, so that a thread is
    // counted before any session that closes the gate after it entered can look.
    std::atomic<std::uint64_t> word_{0};
};

inline constinit FastPathGate fast_path_gate;

}  // namespace lms::program

// Whether this thread moves memory just now. Asked by itself it is in a signal handler that has interrupted
// the move, and would wait for itself: for its turn, or for a chunk that it moves.
#pragma once

#include <exception>

namespace lms::executor {

// What a call from such a handler ends with.
struct WaitsForItself : std::exception {
    const char* what() const noexcept override { return "a thread waits for its own move"; }
};

inline constinit thread_local bool moves_memory = false;

inline void refuse_to_wait_for_oneself() {
    if (moves_memory) throw WaitsForItself();
}

}  // namespace lms::executor

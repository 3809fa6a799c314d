// Whose memory this thread moves just now. Asked by itself it is in a signal handler that has interrupted the
// move, and would wait for itself: for its turn, or for a chunk that it moves.
#pragma once

#include <exception>

namespace lms::executor {

class Migrator;

// What a call from such a handler ends with.
struct WaitsForItself : std::exception {
    const char* what() const noexcept override { return "a thread waits for its own move"; }
};

inline constinit thread_local const Migrator* moves_by = nullptr;

inline void refuse_to_wait_for_oneself(const Migrator* migrator) {
    if (moves_by == migrator) throw WaitsForItself();
}

}  // namespace lms::executor

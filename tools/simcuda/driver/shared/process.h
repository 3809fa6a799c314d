// Whether a process that was seen before is still there.
#pragma once

#include <cstdint>

namespace simcuda::driver::shared {

// A process number is used again, and a program may take the place of another in its process (exec). Both
// times, and where the stack lies, tell them apart.
struct Identity {
    std::int32_t process = 0;
    std::uint64_t started = 0;  // clock ticks after the machine's start
    std::uint64_t stack = 0;    // where the main thread's begins; 0: the system does not say
};

Identity own_identity();

// The same program in the same process, with at least one thread that has not ended.
bool is_alive(const Identity& identity);

// What its threads are about. If all are asleep, and have switched as often as before, they were meanwhile.
struct Activity {
    bool asleep = false;         // no thread runs or is about to
    std::uint64_t switches = 0;  // how often a thread has stopped running
};
Activity activity_of(std::int32_t process);

}  // namespace simcuda::driver::shared

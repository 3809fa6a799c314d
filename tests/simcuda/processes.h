// Several processes in one test: what passes between them, and the page of those on the same GPUs.
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/simcuda/sim.h"
#include "tests/support/scratch.h"

namespace sim {

// A pipe to each side, on which values are sent whole.
struct Channel {
    Channel() {
        EXPECT(::pipe(to_other) == 0);
        EXPECT(::pipe(to_first) == 0);
    }
    template <class Value>
    static void send(const int (&ends)[2], const Value& value) {
        EXPECT(::write(ends[1], &value, sizeof value) == sizeof value);
    }
    template <class Value>
    static Value receive(const int (&ends)[2]) {
        Value value{};
        if (::read(ends[0], &value, sizeof value) != sizeof value) {
            EXPECT(!"the other process is there");
            stop();
        }
        return value;
    }
    int to_other[2], to_first[2];
};

// SIMCUDA_SHARED for this process, before its first call, and for those that it forks.
struct SharedGpus {
    SharedGpus() { ::setenv("SIMCUDA_SHARED", file().c_str(), 1); }
    std::string file() const { return scratch.path("page"); }
    Scratch scratch;
};

inline void kill(pid_t process) {
    EXPECT(::kill(process, SIGKILL) == 0);
}

inline void reap(pid_t process) {
    EXPECT(::waitpid(process, nullptr, 0) == process);
}

}  // namespace sim

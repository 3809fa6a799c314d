// Identifies one process of the machine among all, those of containers included, which have numbers of their
// own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace lms::trace {

struct ProcessName {
    std::int64_t number = 0;    // as getpid() says in it; 0: no process
    std::uint64_t started = 0;  // in the system's ticks since it was started (proc(5), field 22)
    // The name spaces in which these two mean something: of process numbers and of time, by their inodes; 0:
    // not known.
    std::uint64_t spaces = 0;

    bool operator==(const ProcessName&) const = default;
};

// Any thread; none of these throws but for std::bad_alloc.
ProcessName this_process() noexcept;
// The one that has this number here; where there is none, or it is dead, a name that no process has.
ProcessName process_of(pid_t number) noexcept;

// "12.3456.789", as a file's name or a variable's value; what is no such text names no process.
std::string text_of(const ProcessName& process);
ProcessName parse_process(const char* text) noexcept;

// Unknown: its numbers mean nothing here.
enum class Life { Runs, Gone, Unknown };
Life life_of(const ProcessName& process) noexcept;

}  // namespace lms::trace

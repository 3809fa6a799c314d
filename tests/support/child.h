// Children of fork, for what would change or end a test's own process. They end with it, and after two
// minutes in any case, of which none takes a tenth.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

namespace support {

// Starts one, which ends with the status that `body` returns, or with 0.
template <typename Body>
pid_t start_child(Body&& body) {
    std::fflush(nullptr);  // or the child prints it again
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(120);
    // Nothing may leave here otherwise: the cases after this one are the parent's.
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
        body();
        ::_exit(0);
    } else {
        ::_exit(body());
    }
}

// Waits for it: its exit status, or 128 + signal.
inline int end_of_child(pid_t child) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

template <typename Body>
int in_child(Body&& body) {
    return end_of_child(start_child(body));
}

// "" for one that ended by itself.
inline std::string death_of_child(int status) {
    return status > 128 ? std::string("killed by ") + ::strsignal(status - 128) + "\n" : "";
}

// Whole, as far as anybody reads it.
inline void write_report(int file, const std::string& text) {
    for (std::size_t sent = 0; sent < text.size();) {
        const auto bytes = ::write(file, text.data() + sent, text.size() - sent);
        if (bytes <= 0) return;
        sent += static_cast<std::size_t>(bytes);
    }
}

// What `body(report)`, in a child, writes to the file that it is given, and how it died if it did.
template <typename Body>
std::string report_of_child(Body&& body) {
    int ends[2];
    if (::pipe(ends) != 0) return "pipe failed\n";
    const pid_t child = start_child([&] {
        ::close(ends[0]);
        body(ends[1]);
    });
    ::close(ends[1]);
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t bytes; (bytes = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
        text.append(buffer.data(), static_cast<std::size_t>(bytes));
    ::close(ends[0]);
    return text + death_of_child(end_of_child(child));
}

}  // namespace support

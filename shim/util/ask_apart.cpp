#include "shim/util/ask_apart.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string_view>

namespace lms::util {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kLate = "no answer in time";

std::vector<std::string> environment(const std::vector<std::pair<std::string, std::string>>& variables) {
    std::vector<std::string> all;
    for (char** each = environ; each && *each; ++each) {
        const std::string_view entry = *each;
        if (!entry.starts_with("LD_PRELOAD=") && !entry.starts_with("LD_AUDIT=") &&
            !entry.starts_with("LMS_"))
            all.emplace_back(entry);
    }
    for (const auto& [name, value] : variables) all.push_back(fmt::format("{}={}", name, value));
    return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> all;
    for (std::string& word : words) all.push_back(word.data());
    all.push_back(nullptr);
    return all;
}

// Signals as any program finds them, whatever the host has done to its own; streams that go nowhere but
// `answer`.
bool start(std::vector<std::string> command, std::vector<std::string> variables, int answer, pid_t& process) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&files) != 0) return false;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return false;
    }
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const bool started =
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
        posix_spawn_file_actions_adddup2(&files, answer, STDOUT_FILENO) == 0 &&
        posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
        posix_spawn(&process, command[0].c_str(), &files, &attributes, pointers(command).data(),
                    pointers(variables).data()) == 0;
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return started;
}

// The first line of what comes before the other end is closed; kLate where the time is over, which on a
// loaded machine says nothing of what was asked.
std::string read_line(int from, std::chrono::milliseconds bound) {
    std::string said;
    const auto deadline = Clock::now() + bound;
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd ready{from, POLLIN, 0};
        const int polled = left > 0 ? poll(&ready, 1, static_cast<int>(left)) : 0;
        if (polled < 0 && errno == EINTR) continue;
        if (polled <= 0) return std::string(kLate);
        char block[256];
        const ssize_t bytes = read(from, block, sizeof block);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) return {};
        said.append(block, static_cast<std::size_t>(bytes));
        if (const auto end = said.find('\n'); end != said.npos) return said.substr(0, end);
    }
}

}  // namespace

std::optional<std::string> ask_apart(const std::vector<std::string>& command,
                                     const std::vector<std::pair<std::string, std::string>>& variables,
                                     std::chrono::milliseconds bound) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
    pid_t process = 0;
    const bool started = start(command, environment(variables), ends[1], process);
    close(ends[1]);
    std::optional<std::string> said;
    if (started) {
        said = read_line(ends[0], bound);
        // It has nothing more to say, and may hang in a driver on its way out.
        kill(process, SIGKILL);
        // A host that waits for all its children may have been first.
        while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    close(ends[0]);
    return said;
}

}  // namespace lms::util

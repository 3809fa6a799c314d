#include "shim/util/ask_apart.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string_view>

#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::util {
namespace {

constexpr std::string_view kLate = "no answer in time";

// Not what loads code into a process (preloads, profilers) or sets the shim.
bool is_kept(std::string_view entry) {
    for (const std::string_view left :
         {"LD_PRELOAD=", "LD_AUDIT=", "LMS_", "CUDA_INJECTION64_PATH=", "NVTX_INJECTION64_PATH="}) {
        if (entry.starts_with(left)) return false;
    }
    return true;
}

std::vector<std::string> environment(const std::vector<std::pair<std::string, std::string>>& variables) {
    std::vector<std::string> all;
    for (char** each = environ; each && *each; ++each) {
        if (is_kept(*each)) all.emplace_back(*each);
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

// What a process needs in order to start another. It shares the host's memory and files, and its stack is
// here.
struct Starter {
    char* const* command;
    char* const* variables;
    int answer;
    pid_t process = 0;    // 0: it could not be started
    int descriptor = -1;  // of that process; -1: the kernel has none
    alignas(16) char stack[64 << 10];
};

// Signals as any program finds them, whatever the host has done to its own; streams that go nowhere but
// `answer`.
bool spawn(Starter& starter) {
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
    // What is sent to the host's group (a key of its terminal, a time limit) is not meant for it.
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    const bool started =
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
        posix_spawn_file_actions_adddup2(&files, starter.answer, STDOUT_FILENO) == 0 &&
        posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
        posix_spawn(&starter.process, starter.command[0], &files, &attributes, starter.command,
                    starter.variables) == 0;
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return started;
}

int spawn_and_end(void* of) {
    Starter& starter = *static_cast<Starter*>(of);
    if (!spawn(starter)) {
        starter.process = 0;
        return 0;
    }
    // Before anybody can have reaped it.
    starter.descriptor = static_cast<int>(syscall(SYS_pidfd_open, starter.process, 0));
    return 0;
}

// Starts it from a process in between, which has ended when this returns and of which the host is sent no
// signal: what the host knows of its children, and how it waits for them, is its own.
bool start_apart(Starter& starter) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    constexpr int kShared = CLONE_VM | CLONE_VFORK | CLONE_FILES;  // and no signal at its end
    const pid_t between = clone(spawn_and_end, starter.stack + sizeof starter.stack, kShared, &starter);
    while (between > 0 && waitpid(between, nullptr, __WALL) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return between > 0 && starter.process > 0;
}

// Whether there is something to read, or the end of it, by then.
bool await(int descriptor, Clock::time_point deadline) {
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd ready{descriptor, POLLIN, 0};
        const int polled = left > 0 ? poll(&ready, 1, static_cast<int>(left)) : 0;
        if (polled >= 0 || errno != EINTR) return polled > 0;
    }
}

// It has nothing more to say. What it has of a GPU is free once it has ended, `by_itself` where it may take
// the time for that: it may hang in a driver on its way out, also once it is to end. By its number alone it
// is not ended: that may be another's by now.
void end(const Starter& starter, bool by_itself) {
    if (starter.descriptor >= 0) {
        if (!by_itself || !await(starter.descriptor, Clock::now() + bounds::kEndsApart)) {
            syscall(SYS_pidfd_send_signal, starter.descriptor, SIGKILL, nullptr, 0);
            await(starter.descriptor, Clock::now() + bounds::kEndedApart);
        }
        close(starter.descriptor);
    }
    // Orphans may be this process's to reap: it is the first of a container, say.
    waitpid(starter.process, nullptr, WNOHANG);
}

// The first line of what comes before the other end is closed; kLate where the time is over, which on a
// loaded machine says nothing of what was asked.
std::string read_line(int from, std::chrono::milliseconds bound) {
    std::string said;
    const auto deadline = Clock::now() + bound;
    for (;;) {
        if (!await(from, deadline)) return std::string(kLate);
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
    std::vector<std::string> words = command, set = environment(variables);
    const std::vector<char*> argv = pointers(words), envp = pointers(set);
    const std::unique_ptr<Starter> starter(new Starter{argv.data(), envp.data(), ends[1]});
    const bool started = start_apart(*starter);
    close(ends[1]);
    std::optional<std::string> said;
    if (started) {
        said = read_line(ends[0], bound);
        end(*starter, said != kLate);
    }
    close(ends[0]);
    return said;
}

}  // namespace lms::util

#include "tools/gpu_facts/child.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

namespace facts {
namespace {

using Clock = std::chrono::steady_clock;

// A process that the driver holds in the kernel does not die at once; it is left behind rather than waited
// for.
constexpr auto kPatience = std::chrono::seconds(5);

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        std::vector<char*> words;
        for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
        words.push_back(nullptr);
        execv(words[0], words.data());
        _exit(127);
    }
    close(ends[1]);
    pipe_ = ends[0];
}

Child::~Child() {
    if (pipe_ >= 0) close(pipe_);
}

std::string Child::collect(int seconds, std::string& output) {
    if (pid_ < 0) return "could not be started";
    const auto deadline = Clock::now() + std::chrono::seconds(seconds);
    bool stopped = false;
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd poll_for{pipe_, POLLIN, 0};
        if (left <= 0 || poll(&poll_for, 1, static_cast<int>(left)) == 0) {
            kill(pid_, SIGKILL);
            stopped = true;
            break;
        }
        char block[4096];
        const ssize_t bytes = read(pipe_, block, sizeof block);
        if (bytes <= 0) break;
        output.append(block, static_cast<std::size_t>(bytes));
    }
    int status = 0;
    const auto end = Clock::now() + kPatience;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
        if (Clock::now() > end) {
            kill(pid_, SIGKILL);
            return "does not end";
        }
        usleep(2000);
    }
    if (stopped) return fmt::format("was stopped after {} s", seconds);
    if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? "" : fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace facts

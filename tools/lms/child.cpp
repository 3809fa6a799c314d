#include "tools/lms/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

namespace lms::tool {
namespace {

// Those by which others end a program, or tell it something.
constexpr int kPassedOn[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGALRM};

std::atomic<pid_t> program = 0;

// What the terminal sends reaches the whole group, the program too; what a process sends, this one alone.
void pass_on(int signal, siginfo_t* info, void*) {
    const int before = errno;
    const pid_t receiver = program.load();
    if (info->si_code <= 0 && receiver > 0) kill(receiver, signal);
    errno = before;
}

[[noreturn]] void start(const std::vector<std::string>& command, const sigset_t& mask, int problem_to) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    const int problem = become(command);
    [[maybe_unused]] const ssize_t told = write(problem_to, &problem, sizeof problem);
    _exit(127);
}

}  // namespace

int become(const std::vector<std::string>& command) {
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    return errno;
}

Ended run_and_wait(const std::vector<std::string>& command) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return {errno, 0};
    sigset_t passed_on;
    sigset_t mask;
    sigemptyset(&passed_on);
    for (const int signal : kPassedOn) sigaddset(&passed_on, signal);
    // Until it is known whom they go to.
    sigprocmask(SIG_BLOCK, &passed_on, &mask);
    const pid_t child = fork();
    if (child == 0) start(command, mask, ends[1]);
    close(ends[1]);
    Ended ended{child < 0 ? errno : 0, 0};
    if (child > 0) {
        program = child;
        struct sigaction action = {};
        action.sa_sigaction = pass_on;
        action.sa_flags = SA_SIGINFO | SA_RESTART;
        for (const int signal : kPassedOn) {
            struct sigaction before;
            // What this process was told to ignore (nohup), the program ignores too.
            if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
                sigaction(signal, &action, nullptr);
        }
        sigprocmask(SIG_SETMASK, &mask, nullptr);
        int problem = 0;
        if (read(ends[0], &problem, sizeof problem) == sizeof problem) ended.problem = problem;
        while (waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
        }
        program = 0;  // the number may be another's from here on
    }
    close(ends[0]);
    return ended;
}

void end_as(int status) {
    if (!WIFSIGNALED(status)) exit(WEXITSTATUS(status));
    // One core file is enough.
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    exit(128 + WTERMSIG(status));
}

}  // namespace lms::tool

#include "tools/lms/first_steps.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "tools/lms/child.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/places.h"
#include "tools/lms/program_kind.h"
#include "tools/lms/run.h"
#include "tools/lms/simulated_work.h"
#include "tools/lms/to_stderr.h"

namespace lms::tool {
namespace {

// A folder that goes with it.
class Scratch {
  public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "lms-plan-XXXXXX").string();
        if (mkdtemp(name.data()) != nullptr) path_ = name;
    }
    ~Scratch() {
        std::error_code none;
        if (!path_.empty()) std::filesystem::remove_all(path_, none);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

// Ends the program after so many seconds, as Ctrl-C would: what this process is sent, it passes on.
class Alarm {
  public:
    explicit Alarm(unsigned seconds) {
        if (seconds == 0) return;
        thread_ = std::jthread([this, seconds](const std::stop_token& stop) {
            std::unique_lock lock(mutex_);
            if (!over_.wait_for(lock, stop, std::chrono::seconds(seconds), [] { return false; }) &&
                !stop.stop_requested())
                kill(getpid(), SIGTERM);
        });
    }

  private:
    std::mutex mutex_;
    std::condition_variable_any over_;
    std::jthread thread_;
};

// What it prints on stdout goes to stderr meanwhile, for a plan is what stdout is for.
Ended run_beside(const std::vector<std::string>& command) {
    std::fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    const Ended ended = run_and_wait(command);
    dup2(before, STDOUT_FILENO);
    close(before);
    return ended;
}

// The process that did most: a program may start others.
std::filesystem::path largest_trace(const std::filesystem::path& folder) {
    std::filesystem::path found;
    std::uintmax_t most = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (!entry.path().filename().string().starts_with("trace.") || entry.file_size() <= most) continue;
        most = entry.file_size();
        found = entry.path();
    }
    return found;
}

void set_up(const FirstSteps& options, const std::filesystem::path& folder) {
    setenv("LMS_TRACE", (folder / "trace.%p").c_str(), 1);
    setenv("SIMCUDA_WORK", (folder / "work").c_str(), 1);
    setenv("SIMCUDA_CLOCK", "simulated", 1);
    if (options.skips_native) setenv("SIMCUDA_SKIP_NATIVE", "1", 1);
    const auto half = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE)) / 2;
    if (!options.memory.empty()) {
        setenv("SIMCUDA_MEMORY", options.memory.c_str(), 1);
    } else {
        setenv("SIMCUDA_MEMORY", fmt::format("{}", half).c_str(), 0);
    }
}

std::string ending(const Ended& ended) {
    if (WIFSIGNALED(ended.status)) return fmt::format("was ended by signal {}", WTERMSIG(ended.status));
    return fmt::format("ended with status {}", WEXITSTATUS(ended.status));
}

bool ran_kernels(const Trace& trace) {
    return std::ranges::any_of(trace.events, [](const trace::Event& event) {
        const auto* const launch = std::get_if<trace::Launch>(&event);
        return launch != nullptr && !launch->kernel.empty();
    });
}

std::nullopt_t fail_steps(int& status, int with, const std::string& why) {
    status = with;
    to_stderr("lms plan: {}\n", why);
    return std::nullopt;
}

}  // namespace

std::optional<Workload> run_first_steps(const FirstSteps& options, int& status) {
    const Scratch scratch;
    if (scratch.path().empty())
        return fail_steps(status, kCannotSetUp,
                          fmt::format("no folder for the trace: {}", std::strerror(errno)));
    if (const std::string problem = put_in_front(true); !problem.empty())
        return fail_steps(status, kCannotSetUp, problem);
    set_up(options, scratch.path());
    Ended ended;
    {
        const Alarm alarm(options.seconds);
        ended = run_beside(with_interpreter(options.command));
    }
    if (ended.problem != 0)
        return fail_steps(status, ended.problem == ENOENT ? kNotFound : kCannotExecute,
                          fmt::format("{}: {}", options.command[0], std::strerror(ended.problem)));
    const std::filesystem::path path = largest_trace(scratch.path());
    if (path.empty())
        return fail_steps(
            status, kNotWell,
            fmt::format(
                "the program {} and had no managed memory: no allocation reached LMS_THRESHOLD, or {}",
                ending(ended), why_untouched(options.command[0])));
    auto trace = std::make_unique<Trace>();
    std::string problem;
    read_trace_file(path.string(), *trace, problem);
    if (!problem.empty()) return fail_steps(status, kNotWell, problem);
    if (ended.status != 0 && options.seconds == 0 && !ran_kernels(*trace))
        return fail_steps(
            status, kNotWell,
            fmt::format("the program {} before a kernel ran; kernels without PTX need --kernel-ms, or "
                        "a trace of a real GPU",
                        ending(ended)));
    if (ended.status != 0 && options.seconds == 0)
        to_stderr("lms plan: the program {}; the plan is of what it did before\n", ending(ended));
    Workload load = workload_of(std::move(trace), problem);
    if (!problem.empty())
        return fail_steps(status, kNotWell, fmt::format("the program's trace: {}", problem));
    use_simulated_work(load, (scratch.path() / "work").string() + path.extension().string());
    return load;
}

}  // namespace lms::tool

#include "tools/lms/run.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "policy/host.h"
#include "shim/trace/events.h"
#include "shim/util/settings.h"
#include "tools/lms/child.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/places.h"
#include "tools/lms/run_share.h"
#include "tools/lms/summary.h"
#include "tools/lms/to_stderr.h"

namespace lms::tool {
namespace {

constexpr const char* kSimulatedMemory = "SIMCUDA_MEMORY";
constexpr const char* kRun = "LMSSHIM_RUN";  // LivePage::run

int fail(int status, const std::string& why) {
    to_stderr("lms run: {}\n", why);
    return status;
}

std::string value_of(const char* variable) {
    const char* const value = getenv(variable);
    return value == nullptr ? "" : value;
}

// What is already preloaded stays in front: some libraries (sanitizers) insist on being first, the shim does
// not.
void preload(const std::string& shim) {
    const std::string before = value_of("LD_PRELOAD");
    if ((":" + before + ":").find(":" + shim + ":") != before.npos) return;
    setenv("LD_PRELOAD", before.empty() ? shim.c_str() : (before + ":" + shim).c_str(), 1);
}

void search_first(const std::string& folder) {
    const std::string before = value_of("LD_LIBRARY_PATH");
    setenv("LD_LIBRARY_PATH", before.empty() ? folder.c_str() : (folder + ":" + before).c_str(), 1);
}

}  // namespace

std::vector<std::string> with_interpreter(std::vector<std::string> command) {
    const std::string& program = command[0];
    const bool script =
        program.ends_with(".py") && access(program.c_str(), F_OK) == 0 && access(program.c_str(), X_OK) != 0;
    const std::string python = value_of("LMSSHIM_PYTHON");
    unsetenv("LMSSHIM_PYTHON");
    if (script) command.insert(command.begin(), python.empty() ? "python3" : python);
    return command;
}

std::string put_in_front(bool simulated) {
    const std::string shim = find_shim();
    if (shim.empty()) return "liblmsshim.so is neither beside this program nor in ../lib/lmsshim";
    if (shim.find_first_of(" :") != shim.npos)
        return fmt::format("the dynamic loader cannot preload {}: its path has a space or colon", shim);
    if (simulated) {
        const std::string folder = find_simulated_gpu();
        if (folder.empty()) return kNoSimulatedGpu;
        search_first(folder);
    }
    preload(shim);
    return {};
}

std::string refuse(const RunOptions& options) {
    Settings parsed;
    for (const Setting& setting : settings_table()) {
        const auto given = options.settings.find(std::string(setting.option));
        if (given == options.settings.end()) continue;
        if (setting.option == "limit" && given->second.ends_with('%')) {
            if (options.simulated && share_of(given->second) > 0) continue;
            return fmt::format("--limit={}: expected {}", given->second,
                               options.simulated ? "a share from 1% to 100%, or a size in bytes, or with "
                                                   "suffix K, M, G or T"
                                                 : "a size in bytes, or with suffix K, M, G or T; a share of "
                                                   "what the program takes needs --sim");
        }
        if (setting.parse(given->second, parsed)) continue;
        return refusal(setting, "--" + given->first, given->second);
    }
    std::string problem;
    if (policy::find(parsed.policy, problem) == nullptr) {
        return fmt::format("--policy={}: {}", parsed.policy, problem);
    }
    if (const auto& memory = options.simulated_memory;
        !memory.empty() && util::parse_bytes(memory).value_or(0) == 0) {
        return fmt::format("--sim-memory={}: expected a size in bytes above 0, or with suffix K, M, G or T",
                           memory);
    }
    if (options.summary != "text" && options.summary != "json" && options.summary != "off")
        return fmt::format("--summary={}: expected text, json or off", options.summary);
    return {};
}

FinishedRun run_and_tell(const std::vector<std::string>& command) {
    const trace::ProcessName self = trace::this_process();
    setenv(kRun, trace::text_of(self).c_str(), 1);
    FinishedRun told{.ended = run_and_wait(command)};
    if (told.ended.problem == 0) told.pages = take_pages(self);
    return told;
}

void say(const FinishedRun& told, const std::vector<std::string>& command, const std::string& how) {
    const std::uint64_t now = trace::now_ns();
    if (how == "off") return;
    to_stderr("{}", how == "json" ? summary_json(told.pages, now) : summary(told.pages, command[0], now));
    const bool managed =
        std::ranges::any_of(told.pages, [](const auto& page) { return page->counters.allocations != 0; });
    if (how == "text" && !managed && !value_of("LMS_TRACE").empty())
        to_stderr("lms: LMS_TRACE={}: no trace, for there was nothing to trace\n", value_of("LMS_TRACE"));
}

int cannot_start(const std::vector<std::string>& command, int problem) {
    return fail(problem == ENOENT ? kNotFound : kCannotExecute,
                fmt::format("{}: {}", command[0], std::strerror(problem)));
}

int run(const RunOptions& options) {
    if (const std::string problem = put_in_front(options.simulated); !problem.empty())
        return fail(kCannotSetUp, problem);
    if (options.simulated && !options.simulated_memory.empty())
        setenv(kSimulatedMemory, options.simulated_memory.c_str(), 1);
    for (const Setting& setting : settings_table()) {
        const auto given = options.settings.find(std::string(setting.option));
        if (given != options.settings.end() && share_of(given->second) == 0)
            setenv(setting.variable.data(), given->second.c_str(), 1);
    }
    // So that ranges which the program names are in the trace; a tool that the user has named stays.
    if (!value_of("LMS_TRACE").empty()) setenv("NVTX_INJECTION64_PATH", find_shim().c_str(), 0);
    const std::vector<std::string> command = with_interpreter(options.command);
    const auto limit = options.settings.find("limit");
    const double share = limit == options.settings.end() ? 0 : share_of(limit->second);
    if (share > 0) return run_at_share(command, share, options.summary);
    if (options.summary == "off") return cannot_start(command, become(command));
    const FinishedRun told = run_and_tell(command);
    if (told.ended.problem != 0) return cannot_start(command, told.ended.problem);
    say(told, command, options.summary);
    end_as(told.ended.status);
}

}  // namespace lms::tool

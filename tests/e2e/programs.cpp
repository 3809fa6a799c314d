#include "tests/e2e/programs.h"

#include <nlohmann/json.hpp>

namespace e2e {

namespace {

std::vector<std::string> command(const std::vector<std::string>& arguments) {
    std::vector<std::string> words = arguments;
    words[0] = support::build_dir() + "/apps/" + arguments[0];
    return words;
}

Environment simulated(const std::string& memory, const Environment& more) {
    Environment environment = {{"LD_LIBRARY_PATH", support::build_dir() + "/sim"},
                               {"SIMCUDA_MEMORY", memory},
                               {"SIMCUDA_GRANULARITY", "64K"},
                               {"SIMCUDA_LOCAL_THREADS", "64"}};
    for (const auto& [name, value] : more) environment[name] = value;
    return environment;
}

}  // namespace

support::Result run_bare(const std::vector<std::string>& arguments, const std::string& memory,
                         const Environment& more) {
    return support::run(command(arguments), simulated(memory, more));
}

Run run_shimmed(const std::vector<std::string>& arguments, const std::string& memory,
                const Environment& more) {
    Environment environment = simulated(memory, more);
    std::string& preloaded = environment["LD_PRELOAD"];
    preloaded += (preloaded.empty() ? "" : ":") + support::preloaded_shim();
    environment["LMS_STATS"] = support::scratch_file("stats.json");
    environment.emplace("LMS_THRESHOLD", "16K");
    environment["SIMCUDA_REPORT"] = support::scratch_file("report.json");
    Run run{support::run(command(arguments), environment), {}};
    const auto json = nlohmann::json::parse(support::read_file(environment["LMS_STATS"]), nullptr, false);
    for (const auto& [name, value] : json.items()) {
        if (value.is_number()) run.stats[name] = value;
    }
    const auto report =
        nlohmann::json::parse(support::read_file(environment["SIMCUDA_REPORT"]), nullptr, false);
    if (report.is_object()) run.violations = report.at("violation_count");
    return run;
}

}  // namespace e2e

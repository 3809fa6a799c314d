// Runs of check.py and frameworks.py over stub.py instead of CUDA programs, in a build folder of their own.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/process.h"
#include "tests/support/scratch.h"

namespace runs {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

struct Outcome : support::Result {
    nlohmann::json results;

    // The verdict of a case of a program ("vector_add") or variant ("torch"); empty if there is no such row.
    std::string verdict(const std::string& name, const std::string& label) const {
        for (const char* kind : {"checks", "runs"}) {
            if (!results.contains(kind)) continue;
            for (const auto& row : results.at(kind)) {
                if (row.value("program", row.value("variant", "")) == name && row.at("case") == label)
                    return row.at("verdict");
            }
        }
        return {};
    }

    bool notes(const std::string& text) const {
        for (const auto& note : results.at("notes")) {
            if (note.get<std::string>().find(text) != std::string::npos) return true;
        }
        return false;
    }
};

inline void copy_stub(const fs::path& to) {
    fs::create_directories(to.parent_path());
    fs::copy_file("tests/gpu/stub.py", to, fs::copy_options::overwrite_existing);
    fs::permissions(to, fs::perms::owner_all);
}

// A build folder with the simulated GPU, a library that is no shim, and nothing else.
inline std::string fake_build(const Scratch& scratch) {
    const fs::path build = scratch.path("build");
    fs::create_directories(build / "gpu");
    fs::create_symlink(support::build_dir() + "/sim", build / "sim");
    fs::create_symlink(support::build_dir() + "/gpu/gpu-facts", build / "gpu" / "gpu-facts");
    scratch.put("build/liblmsshim.so", "");
    return build;
}

// Runs tests/gpu/<script> on the simulated GPU with results in the scratch folder.
inline Outcome run(const Scratch& scratch, const std::string& script, std::vector<std::string> arguments,
                   Environment environment = {}) {
    std::vector<std::string> command = {"python3", "-B",    "tests/gpu/" + script + ".py",
                                        "--sim",   "--out", scratch.path("results")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    environment.emplace("SIMCUDA_MEMORY", "128M");
    Outcome outcome{support::run(command, environment), {}};
    const std::string file = scratch.path("results/simulated-gpu-" + script + ".json");
    outcome.results = nlohmann::json::parse(support::read_file(file), nullptr, false);
    return outcome;
}

}  // namespace runs

#include "tools/lms/doctor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shim/util/host_memory.h"
#include "shim/util/settings.h"
#include "tools/lms/driver.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/places.h"
#include "tools/lms/self_check.h"

namespace lms::tool {
namespace {

struct Preload {
    std::string path;     // of the shim; empty if it is not there
    std::string problem;  // one line; empty if a program starts with it
};

struct Findings {
    Preload shim;
    Driver driver;
    std::uint64_t host_limit_bytes = 0;

    bool well() const {
        return shim.problem.empty() && driver.problem.empty() &&
               std::ranges::any_of(driver.gpus, [](const Gpu& gpu) {
                   return gpu.virtual_memory && !gpu.verdict.starts_with("nothing moves");
               });
    }
};

// Where LD_PRELOAD is exported for good, the shim is here too and would be found in the driver's place:
// begins again without it. Returns where it is not so.
void leave_the_shim(const DoctorOptions& options) {
    if (dlsym(RTLD_DEFAULT, "cuInit") == nullptr || unsetenv("LD_PRELOAD") != 0) return;
    std::vector<const char*> words = {"lms", "doctor"};
    if (options.simulated) words.push_back("--sim");
    if (options.as_json) words.push_back("--json");
    if (options.tries) words.push_back("--check");
    words.push_back(nullptr);
    execv("/proc/self/exe", const_cast<char* const*>(words.data()));
}

// What a program with nothing to do says when the shim is preloaded into it; the loader complains on stderr
// and starts the program all the same.
std::string try_preload(const std::string& shim) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe to try it with";
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        setenv("LD_PRELOAD", shim.c_str(), 1);
        execl("/bin/sh", "sh", "-c", ":", nullptr);
        _exit(kNotFound);
    }
    close(ends[1]);
    std::string said;
    char block[512];
    for (ssize_t bytes; (bytes = read(ends[0], block, sizeof block)) > 0;) {
        said.append(block, static_cast<std::size_t>(bytes));
    }
    close(ends[0]);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return "no process to try it with";
    if (!said.empty()) return said.substr(0, said.find('\n'));
    return status == 0 ? "" : fmt::format("a program with it ended with status {:#x}", status);
}

Preload inspect_shim() {
    Preload preload{.path = find_shim(), .problem = {}};
    preload.problem = preload.path.empty() ? "neither beside this program nor in ../lib/lmsshim"
                                           : try_preload(preload.path);
    return preload;
}

Driver inspect(bool simulated) {
    if (!simulated) return inspect_driver(settings().driver_path);
    const std::filesystem::path folder = find_simulated_gpu();
    if (folder.empty()) return {.problem = kNoSimulatedGpu};
    return inspect_driver(folder / "libcuda.so.1");
}

// One line for each problem.
std::vector<std::string> remedies(const Findings& findings) {
    std::vector<std::string> all;
    if (findings.shim.path.empty()) {
        all.emplace_back("build it, or install lmsshim whole: make install PREFIX=...");
    } else if (!findings.shim.problem.empty()) {
        all.emplace_back("install what the shim misses: make setup");
    }
    const Driver& driver = findings.driver;
    if (driver.problem == kNoSimulatedGpu) return all;  // that tells
    if (driver.path.empty()) {
        all.emplace_back(
            "install NVIDIA's driver, or have LMS_DRIVER name its libcuda.so.1; without a GPU: lms run "
            "--sim");
    } else if (driver.gpus.empty()) {
        all.emplace_back(
            "see whether nvidia-smi lists a GPU, and what CUDA_VISIBLE_DEVICES and LMS_DRIVER are; a "
            "container "
            "has only those that it was given");
    }
    for (std::size_t i = 0; i < driver.gpus.size(); ++i) {
        if (!driver.gpus[i].virtual_memory)
            all.push_back(
                fmt::format("GPU {} lets no program map memory, so nothing can move there: take another, or "
                            "a newer driver",
                            i));
        if (driver.gpus[i].verdict.starts_with("nothing moves"))
            all.push_back(fmt::format("GPU {} lost what was moved: take another driver, and report this", i));
    }
    return all;
}

const char* yes_or_no(bool yes) {
    return yes ? "yes" : "no";
}

void print_text(const Findings& findings) {
    const auto part = [](const char* name, const std::string& path, const std::string& problem) {
        fmt::print("{}: {}{}{}\n", name, path.empty() ? "not found" : path, problem.empty() ? "" : ": ",
                   problem);
    };
    part("shim", findings.shim.path, findings.shim.problem);
    const Driver& driver = findings.driver;
    part("driver", driver.path, driver.problem);
    if (driver.version != 0) fmt::print("CUDA: {}.{}\n", driver.version / 1000, driver.version % 1000 / 10);
    for (std::size_t i = 0; i < driver.gpus.size(); ++i) {
        const Gpu& gpu = driver.gpus[i];
        fmt::print("GPU {}: {}, {}; virtual memory: {}; host memory behind device addresses: {}\n", i,
                   gpu.name, util::format_bytes(gpu.memory_bytes), yes_or_no(gpu.virtual_memory),
                   yes_or_no(gpu.maps_host));
        if (!gpu.verdict.empty()) fmt::print("GPU {}, moves tried: {}\n", i, gpu.verdict);
    }
    if (!driver.path.empty() && driver.gpus.empty()) fmt::print("GPU: none\n");
    fmt::print("host memory the shim may pin: {}\n", util::format_bytes(findings.host_limit_bytes));
    for (const std::string& remedy : remedies(findings)) fmt::print("to do: {}\n", remedy);
    fmt::print("{}\n", findings.well() ? "all is well" : "programs will run as without the shim");
}

void print_json(const Findings& findings) {
    auto gpus = nlohmann::ordered_json::array();
    for (const Gpu& gpu : findings.driver.gpus) {
        gpus.push_back({{"name", gpu.name},
                        {"memory_bytes", gpu.memory_bytes},
                        {"virtual_memory", gpu.virtual_memory},
                        {"maps_host", gpu.maps_host},
                        {"moves", gpu.verdict}});
    }
    const nlohmann::ordered_json json = {
        {"well", findings.well()},
        {"shim", {{"path", findings.shim.path}, {"problem", findings.shim.problem}}},
        {"driver",
         {{"path", findings.driver.path},
          {"problem", findings.driver.problem},
          {"version", findings.driver.version}}},
        {"gpus", gpus},
        {"to_do", remedies(findings)},
        {"host_limit_bytes", findings.host_limit_bytes}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int doctor(const DoctorOptions& options) {
    leave_the_shim(options);
    Findings findings = {.shim = inspect_shim(),
                         .driver = inspect(options.simulated),
                         .host_limit_bytes = util::host_limit_bytes(settings().host_limit_bytes)};
    if (options.tries) {
        for (Gpu& gpu : findings.driver.gpus)
            gpu.verdict = self_check_apart(gpu.bus_id, findings.driver.path);
    }
    options.as_json ? print_json(findings) : print_text(findings);
    return findings.well() ? 0 : kNotWell;
}

}  // namespace lms::tool

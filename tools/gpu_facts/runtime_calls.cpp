// Fact 6: what the runtime hands to the driver. A small program, built with the runtime linked in and with
// the shared one, runs with a logger preloaded that stands in front of the driver; what the logger writes is
// recorded.
#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include "tools/gpu_facts/child.h"
#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

namespace fs = std::filesystem;

fs::path own_folder() {
    std::error_code none;
    return fs::read_symlink("/proc/self/exe", none).parent_path();
}

void log_calls(const std::string& linkage, Record& record) {
    const fs::path folder = own_folder();
    Child child({folder / ("runtime_" + linkage)},
                {{"LD_PRELOAD", folder / "runtime_logger.so"}, {"FACTS_DRIVER", driver_path()}});
    std::string output;
    const std::string ended = child.collect(kProbeSeconds - 5, output);
    std::istringstream lines(output);
    int lookups = 0, number = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("lookup ")) {
            ++lookups;
        } else {
            record.text(fmt::format("{:02} {}", ++number, line.substr(0, line.find(' '))),
                        line.find(' ') == line.npos ? "" : line.substr(line.find(' ') + 1));
        }
    }
    record.number("lookups by cuGetProcAddress", lookups, "");
    if (!ended.empty()) throw Failure{CUDA_ERROR_UNKNOWN, "the program with the runtime " + ended};
}

}  // namespace

void static_runtime_calls(const Card& card, Record& record) {
    if (card.simulated()) throw Failure{CUDA_ERROR_NOT_SUPPORTED, "NVIDIA's runtime over a simulated driver"};
    log_calls("static", record);
}

void shared_runtime_calls(const Card&, Record& record) {
    log_calls("shared", record);
}

}  // namespace facts

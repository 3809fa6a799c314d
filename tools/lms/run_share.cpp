#include "tools/lms/run_share.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>

#include "shim/util/units.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/to_stderr.h"
#include "tools/lms/workload.h"

namespace lms::tool {
namespace {

using util::format_bytes;

std::uint64_t size_in(const char* variable, std::uint64_t otherwise) {
    const char* const value = getenv(variable);
    return value ? util::parse_bytes(value).value_or(otherwise) : otherwise;
}

// What the buffers of a process took of a GPU, and what was there besides.
struct Taken {
    std::uint64_t buffers = 0;
    std::uint64_t beside = 0;
};

// Of the process that took most.
Taken taken_by(const Pages& pages) {
    const std::uint64_t total = size_in("SIMCUDA_MEMORY", 1 << 30);
    const std::uint64_t reserve = size_in("LMS_RESERVE", default_reserve(total));
    Taken most;
    for (const auto& page : pages) {
        for (const trace::LiveGpu& gpu : page->gpus) {
            if (gpu.used == 0 || gpu.peak_allocated_bytes <= most.buffers) continue;
            most.buffers = gpu.peak_allocated_bytes;
            const std::uint64_t mine = gpu.budget_bytes + reserve;
            most.beside = total - std::min(total, mine);
        }
    }
    return most;
}

bool have_moved(const Pages& pages) {
    return std::ranges::any_of(
        pages, [](const auto& page) { return page->counters.fills != 0 || page->counters.evictions != 0; });
}

}  // namespace

double share_of(const std::string& text) {
    double percent = 0;
    const char* const end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, percent);
    const bool whole = error == std::errc{} && next + 1 == end && *next == '%';
    return whole && percent >= 1 && percent <= 100 ? percent / 100 : 0;
}

int run_at_share(const std::vector<std::string>& command, double share, const std::string& how) {
    // The buffers of tests are small.
    setenv("LMS_THRESHOLD", "64K", 0);
    setenv("SIMCUDA_GRANULARITY", "64K", 0);
    const FinishedRun whole = run_and_tell(command);
    if (whole.ended.problem != 0) return cannot_start(command, whole.ended.problem);
    if (whole.ended.status != 0) {
        to_stderr("lms run: the program fails with all its memory\n");
        end_as(whole.ended.status);
    }
    const Taken taken = taken_by(whole.pages);
    if (taken.buffers == 0) {
        say(whole, command, how);
        to_stderr("lms run: no buffer can move; --threshold is {}\n", getenv("LMS_THRESHOLD"));
        return kNotWell;
    }
    const auto part = static_cast<std::uint64_t>(share * static_cast<double>(taken.buffers));
    // The reserve is a sixty-fourth of what may be filled, where none is given.
    const std::uint64_t needed = part + taken.beside + size_in("LMS_RESERVE", 0);
    const std::uint64_t limit = getenv("LMS_RESERVE") ? needed : needed * 64 / 63 + 1;
    setenv("LMS_LIMIT", fmt::format("{}", limit).c_str(), 1);
    const FinishedRun small = run_and_tell(command);
    if (small.ended.problem != 0) return cannot_start(command, small.ended.problem);
    say(small, command, how);
    if (how == "text")
        to_stderr("lms: at {:.3g} % of the {} that its buffers take: {}\n", 100 * share,
                  format_bytes(taken.buffers), small.ended.status == 0 ? "passed" : "failed");
    if (small.ended.status == 0 && !have_moved(small.pages)) {
        to_stderr("lms run: nothing moved: no more than {} of buffers were used, or the rest where it lay\n",
                  format_bytes(part));
        return kNotWell;
    }
    end_as(small.ended.status);
}

}  // namespace lms::tool

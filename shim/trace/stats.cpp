#include "shim/trace/stats.h"

#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shim/util/log.h"
#include "shim/util/output_file.h"

namespace lms::trace {
namespace {

constexpr CounterField kFields[] = {
    {"allocations", &Counters::allocations, "Managed buffers allocated"},
    {"frees", &Counters::frees, "Managed buffers freed"},
    {"refusals", &Counters::refusals, "Allocations that failed once for LMS_SOFT_LIMIT"},
    {"launches", &Counters::launches, "Launches of kernels and graphs"},
    {"in_place_launches", &Counters::in_place_launches, "Launches that used some of them in host memory"},
    {"fills", &Counters::fills, "Chunks copied to the GPU"},
    {"fills_ahead", &Counters::fills_ahead, "Of those, as foretold, before they were needed"},
    {"bytes_in", &Counters::bytes_in, "Bytes of all copies to the GPU"},
    {"evictions", &Counters::evictions, "Chunks copied to the host"},
    {"bytes_out", &Counters::bytes_out, "Bytes of those copies"},
    {"peak_resident_bytes", &Counters::peak_resident_bytes, "Most managed bytes on the GPU at once"},
    {"peak_host_bytes", &Counters::peak_host_bytes, "Most bytes of host memory pinned at once"},
    {"stalls", &Counters::stalls, "Times a thread of the app waited for the shim"},
    {"stall_ns", &Counters::stall_ns, "Nanoseconds of those waits"},
    {"self_checks", &Counters::self_checks, "Trials of moves, one on each GPU that filled up"},
    {"self_checks_failed", &Counters::self_checks_failed, "Of those, that turned something off"},
    {"self_check_ns", &Counters::self_check_ns, "Nanoseconds that they took"},
};

// The process whose counters are written; a child of fork has another number.
std::atomic<pid_t> writing_process = 0;
// Of that process; never destroyed, for threads may outlive static objects.
const std::string* target = nullptr;

void report(const std::string& path, int problem) {
    if (problem != 0) log::warn("LMS_STATS: cannot write {}: {}", path, util::OutputFile::reason(problem));
}

void write_counters() noexcept {
    if (writing_process.load(std::memory_order_relaxed) != getpid()) return;
    try {
        util::OutputFile file;
        int problem = file.open(target->c_str(), util::OutputFile::Mode::Truncate);
        // Not at an offset, so that it may be a pipe or a terminal.
        if (problem == 0) problem = file.append(to_json(counters()));
        report(*target, problem);
    } catch (const std::exception&) {
        log::warn("LMS_STATS: out of memory; not written");
    }
}

}  // namespace

std::span<const CounterField> counter_fields() {
    return kFields;
}

std::string to_json(const Counters& counters) {
    nlohmann::ordered_json json;
    for (const CounterField& field : kFields) {
        json[field.name] = (counters.*field.member).load(std::memory_order_relaxed);
    }
    return json.dump(2) + "\n";
}

void write_counters_at_exit(const std::string& path) noexcept try {
    if (path.empty() || writing_process.exchange(getpid()) == getpid()) return;
    // The program may change its folder before it ends.
    target = new std::string(std::filesystem::absolute(util::expand_path(path)));
    // Better told now than after days of work.
    report(*target, util::OutputFile().open(target->c_str(), util::OutputFile::Mode::Append));
    if (std::atexit(write_counters) != 0)
        log::warn("LMS_STATS: no exit handler is left; nothing will be written");
} catch (const std::exception& problem) {
    log::warn("LMS_STATS: {}; nothing will be written", problem.what());
}

}  // namespace lms::trace

#include "shim/trace/stats.h"

#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shim/trace/events.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"
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
    {"evictions", &Counters::evictions,
     "Chunks that went to the host, copied or, where nothing had written them, as they were there"},
    {"bytes_out", &Counters::bytes_out, "Bytes of those copies"},
    {"peak_resident_bytes", &Counters::peak_resident_bytes, "Most managed bytes on the GPU at once"},
    {"peak_host_bytes", &Counters::peak_host_bytes, "Most bytes of host memory pinned at once"},
    {"stalls", &Counters::stalls, "Times a thread of the program waited for the shim"},
    {"stall_ns", &Counters::stall_ns, "Nanoseconds of those waits"},
    {"self_checks", &Counters::self_checks,
     "Trials of moves, one on each GPU that filled up, more where one did not finish"},
    {"self_checks_failed", &Counters::self_checks_failed, "Of those, that turned something off"},
    {"self_check_ns", &Counters::self_check_ns, "Nanoseconds that they took"},
    {"self_checks_remaps_wait", &Counters::self_checks_remaps_wait,
     "Of those trials, that found remaps to wait for all work"},
    {"victims_overruled", &Counters::victims_overruled,
     "Times that the policy named no chunk to go, or one that may not, and lru's choice was taken"},
};

// The process whose counters are written; a child of fork has another number.
std::atomic<pid_t> writing_process = 0;
// Of that process; never destroyed, for threads may outlive static objects. Null before, empty: none.
std::atomic<const std::string*> target = nullptr;

constexpr std::uint64_t kFreshNs = 1'000'000'000;
std::atomic<std::uint64_t> written_ns = 0;

// Once: what cannot be written when the counters begin can mostly not be at their end.
void report(const std::string& path, int problem) {
    static std::atomic<bool> said;
    if (problem != 0 && log::once(said))
        log::warn("LMS_STATS: cannot write {}: {}", path, util::OutputFile::reason(problem));
}

void end_counters() noexcept {
    if (writing_process.load(std::memory_order_relaxed) != getpid()) return;
    report(*target.load(), write_stats(own_page.page, *target.load()));
    withdraw();
}

}  // namespace

std::span<const CounterField> counter_fields() {
    return kFields;
}

nlohmann::ordered_json to_json(const Counters& counters) {
    nlohmann::ordered_json json;
    for (const CounterField& field : kFields) {
        json[field.name] = (counters.*field.member).load(std::memory_order_relaxed);
    }
    return json;
}

void begin_counters(const std::string& path) noexcept try {
    if (writing_process.exchange(getpid()) == getpid()) return;
    // The program may change its folder before it ends.
    target = new std::string(path.empty() ? "" : std::filesystem::absolute(util::expand_path(path)).string());
    const std::string& file = *target.load();
    // Better told now than after days of work.
    if (!file.empty()) report(file, util::OutputFile().open(file.c_str(), util::OutputFile::Mode::Append));
    written_ns = now_ns();
    publish(file);
    replace_stats(own_page.page);
    if (std::atexit(end_counters) != 0 && !file.empty())
        log::warn("LMS_STATS: no exit handler is left; nothing will be written");
} catch (const std::exception& problem) {
    log::warn("LMS_STATS: {}; nothing will be written", problem.what());
}

void refresh_counters() noexcept {
    const std::string* const file = target.load(std::memory_order_relaxed);
    if (file == nullptr || file->empty()) return;
    const std::uint64_t now = now_ns();
    std::uint64_t before = written_ns.load(std::memory_order_relaxed);
    if (now - before < kFreshNs || !written_ns.compare_exchange_strong(before, now)) return;
    // What cannot be written now is told at the end.
    if (writing_process.load(std::memory_order_relaxed) == getpid()) replace_stats(own_page.page);
}

}  // namespace lms::trace

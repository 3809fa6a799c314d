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
#define LMS_COUNTER(name, meaning) {#name, &Counters::name, meaning},
#include <lms/counters.def>
};

// The process whose counters are written; a child of fork has another number.
std::atomic<pid_t> writing_process = 0;
// Of that process; never destroyed, for threads may outlive static objects. Null before, empty: none.
std::atomic<const std::string*> target = nullptr;

constexpr std::uint64_t kFreshNs = 1'000'000'000;
std::atomic<std::uint64_t> written_ns = 0;

// Once: what cannot be written when the counters begin can mostly not be at their end.
void report(const std::string& path, int problem) {
    if (static std::atomic<bool> said; problem != 0 && log::once(said))
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

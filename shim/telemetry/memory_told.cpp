#include "shim/telemetry/memory_told.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "shim/trace/live_page.h"
#include "shim/util/host_memory.h"
#include "shim/util/log.h"
#include "shim/util/settings.h"
#include "shim/util/units.h"

namespace lms::telemetry {
namespace {

std::atomic<std::uint64_t> told_total = 0;
std::atomic<std::uint64_t> told_free = 0;
std::atomic<std::uint64_t> refused_once = 0;
// The process that listens for its end; a child of fork has another number.
std::atomic<pid_t> listening = 0;

bool was_full() {
    const trace::Counters& counters = trace::counters();
    return counters.evictions != 0 || counters.peak_host_bytes != 0;
}

// One that takes what it is told there is, and no more, may take a little beside.
bool took_much_more_than(std::uint64_t total) {
    return std::ranges::any_of(trace::own_page.page.gpus, [&](const trace::LiveGpu& gpu) {
        return gpu.peak_allocated_bytes > total + total / 4;
    });
}

// A program that succeeds may have made do with less: that is said to those who want to know all.
void at_end(int status, void*) noexcept try {
    if (listening != getpid()) return;
    if (status != 0 && refused_once != 0) {
        log::warn(
            "the program ended with {} after LMS_SOFT_LIMIT had an allocation of {} fail, which it did not "
            "retry; run it without that setting",
            status & 0xff, util::format_bytes(refused_once));
        return;
    }
    if (told_total == 0 || settings().meminfo == MemInfo::Enlarged) return;
    const std::uint64_t total = told_total, free = told_free;
    if (was_full() && (status == 0 || took_much_more_than(total))) return;
    const std::string text = fmt::format(
        "the program ended with {} after it had seen {} of GPU memory{}; if that is too little, "
        "LMS_MEMINFO=enlarged shows {}",
        status & 0xff, util::format_bytes(total),
        free == 0 ? "" : ", " + util::format_bytes(free) + " of it free",
        util::format_bytes(total + util::host_limit_bytes(settings().host_limit_bytes)));
    if (status == 0) {
        log::info("{}", text);
    } else {
        log::warn("{}", text);
    }
} catch (const std::bad_alloc&) {
    // There is nobody left to tell.
}

void listen() {
    if (listening != getpid() && listening.exchange(getpid()) != getpid()) ::on_exit(at_end, nullptr);
}

}  // namespace

void note_memory_told(std::uint64_t total_bytes, std::uint64_t free_bytes) noexcept {
    told_total = total_bytes;
    if (free_bytes != 0) told_free = free_bytes;
    listen();
}

void note_refused_once(std::uint64_t bytes) noexcept {
    refused_once = bytes;
    if (bytes != 0) listen();
}

}  // namespace lms::telemetry

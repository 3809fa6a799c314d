#include "tools/simcuda/driver/report.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/error_name.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/vmm.h"

namespace simcuda::driver {
namespace {

constexpr std::size_t kViolationsKept = 1000;

struct Counts {
    std::vector<std::atomic<std::uint64_t>> calls = std::vector<std::atomic<std::uint64_t>>(entries().size());
    std::unordered_map<std::string_view, std::atomic<std::uint64_t>> bases;  // filled once, then only counted
    std::atomic<std::uint64_t> launches{0};
    std::mutex mutex;
    std::vector<std::string> violations;  // guarded by mutex
    std::uint64_t violation_count = 0;    // guarded by mutex

    Counts() {
        for (const EntryInfo& entry : entries()) bases[entry.base];
    }
};

Counts& counts() {
    static Counts& counts = *new Counts;
    return counts;
}

std::FILE* log_file() {
    static std::FILE* file = [] {
        const std::string& name = knobs().log;
        if (name.empty()) return static_cast<std::FILE*>(nullptr);
        if (name == "stderr" || name == "1") return stderr;
        std::FILE* opened = std::fopen(name.c_str(), "a");
        if (opened == nullptr)
            message("SIMCUDA_LOG=%s cannot be opened for writing; logging to stderr", name.c_str());
        return opened == nullptr ? stderr : opened;
    }();
    return file;
}

pid_t reporter = 0;

}  // namespace

void write_report() {
    if (::getpid() != reporter) return;  // a forked child exits; or there is to be none
    nlohmann::ordered_json report;
    Counts& c = counts();
    nlohmann::ordered_json calls;
    for (std::size_t i = 0; i < entries().size(); ++i) {
        if (c.calls[i] != 0) calls[entries()[i].symbol] = c.calls[i].load();
    }
    report["calls"] = calls;
    report["launches"] = c.launches.load();
    if (simulated_time()) report["simulated_ns"] = latest_time_ns();
    report["bytes"] = {{"host_to_device", traffic().host_to_device.load()},
                       {"device_to_host", traffic().device_to_host.load()},
                       {"device_to_device", traffic().device_to_device.load()},
                       {"host_to_host", traffic().host_to_host.load()}};
    for (Device& device : devices()) {
        report["devices"].push_back({{"capacity", device.memory.capacity()},
                                     {"peak", device.memory.peak()},
                                     {"used", device.memory.used()}});
    }
    report["host"] = {{"peak", host_pool().peak()}, {"used", host_pool().used()}};
    const vmm::Alive alive = vmm::alive();
    report["vmm"] = {
        {"handles", alive.handles}, {"mappings", alive.mappings}, {"reservations", alive.reservations}};
    std::lock_guard lock(c.mutex);
    report["violation_count"] = c.violation_count;
    report["violations"] = c.violations;
    std::FILE* file = std::fopen(knobs().report.c_str(), "w");
    if (file == nullptr) {
        message("SIMCUDA_REPORT=%s cannot be opened for writing; no report", knobs().report.c_str());
        return;
    }
    const std::string text = report.dump(2) + "\n";
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
}

Traffic& traffic() {
    static Traffic& traffic = *new Traffic;
    return traffic;
}

std::uint64_t count_call(Entry entry) {
    return ++counts().calls[static_cast<std::size_t>(entry)];
}

std::uint64_t count_base(const char* base) {
    return ++counts().bases.find(base)->second;
}

void log_line(const char* text) {
    if (std::FILE* file = log_file(); file != nullptr) {
        std::fprintf(file, "simcuda: %s\n", text);
        std::fflush(file);
    }
}

void log_call(Entry entry, CUresult result) {
    if (knobs().log.empty()) return;
    log_line((std::string(info(entry).symbol) + " -> " + error_name(result)).c_str());
}

void violation(std::string what) {
    Counts& c = counts();
    std::lock_guard lock(c.mutex);
    ++c.violation_count;
    if (c.violations.size() < kViolationsKept) c.violations.push_back(std::move(what));
}

void count_launch() {
    ++counts().launches;
}

void start_report() {
    static std::once_flag once;
    std::call_once(once, [] {
        if (knobs().report.empty()) return;
        reporter = ::getpid();
        std::atexit(write_report);
    });
}

}  // namespace simcuda::driver

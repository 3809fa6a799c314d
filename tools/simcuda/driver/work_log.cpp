#include "tools/simcuda/driver/work_log.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <utility>

#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/message.h"

namespace simcuda::driver {
namespace {

// Of this process alone: others, which the program may start, have files of their own.
std::FILE* file() {
    static std::FILE* const file = [] {
        const std::string name = knobs().work + "." + std::to_string(::getpid());
        std::FILE* const opened = std::fopen(name.c_str(), "we");
        if (opened == nullptr) message("SIMCUDA_WORK: %s cannot be opened for writing", name.c_str());
        // Whole lines are there also of a program that is killed.
        if (opened != nullptr) std::setvbuf(opened, nullptr, _IOLBF, BUFSIZ);
        return opened;
    }();
    return file;
}

unsigned long long number(std::uint64_t value) {
    return value;
}

}  // namespace

bool logs_work() {
    return !knobs().work.empty();
}

std::uint64_t machine_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void log_kernel(const KernelWork& work, std::uint64_t submitted_ns, std::uint64_t ended_ns) {
    if (work.kernel.empty() || file() == nullptr) return;
    std::fprintf(file(), "kernel %llu %llu %llu %llu %llu %llu %s\n", number(work.at_ns),
                 number(submitted_ns), number(ended_ns), number(work.operations), number(work.bytes),
                 number(work.threads), work.kernel.c_str());
}

void log_memory(int device, std::uint64_t bytes) {
    static std::map<int, std::uint64_t> before;
    if (std::exchange(before[device], bytes) == bytes || file() == nullptr) return;
    std::fprintf(file(), "memory %d %llu\n", device, number(bytes));
}

void log_wait(std::uint64_t from_ns, std::uint64_t until_ns) {
    if (!logs_work() || file() == nullptr) return;
    std::fprintf(file(), "wait %llu %llu\n", number(from_ns), number(until_ns));
}

}  // namespace simcuda::driver

#include "tests/random/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace rnd {

namespace {

std::atomic<unsigned> allowed{0};

struct Noted {
    std::mutex mutex;
    std::string text;
    std::string longest = "none";
};
std::atomic<std::chrono::steady_clock::rep> longest_ticks{0};

Noted& noted() {
    static Noted& instance = *new Noted;
    return instance;
}

}  // namespace

void* driver_function(const char* name) {
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    void* const found = library ? dlsym(library, name) : nullptr;
    if (!found) {
        std::fprintf(stderr, "no %s in libcuda.so.1\n", name);
        std::_Exit(2);
    }
    return found;
}

void allow_failures(unsigned count) {
    allowed = count;
}

unsigned allowed_failures() {
    return allowed.load(std::memory_order_relaxed);
}

void note_failure(const char* name, CUresult result) {
    const std::lock_guard lock(noted().mutex);
    noted().text += " " + std::string(name) + "=" + std::to_string(static_cast<int>(result));
}

void note_call(const char* name, std::chrono::steady_clock::duration took) {
    if (took.count() <= longest_ticks.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(noted().mutex);
    if (took.count() <= longest_ticks) return;
    longest_ticks = took.count();
    noted().longest = name;
}

std::string longest_call() {
    const std::lock_guard lock(noted().mutex);
    const std::chrono::steady_clock::duration took(longest_ticks.load());
    return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count()) + " " +
           noted().longest;
}

std::string failures() {
    const std::lock_guard lock(noted().mutex);
    return noted().text;
}

}  // namespace rnd

#include "shim/app/capture.h"

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

namespace lms::engine {

namespace {

std::atomic<int> captures{0};
std::atomic<int> held_off{0};  // NoCaptures

// Where captures were begun. Never destroyed: exit handlers end streams too.
struct Registry {
    std::mutex mutex;
    std::map<CUstream, int> begun;  // more than one only for the per-thread stream's handle
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

}  // namespace

void capture_begins(CUstream stream) {
    {
        const std::lock_guard lock(registry().mutex);
        ++registry().begun[stream];
    }
    ++captures;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (held_off.load() > 0 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::microseconds(10));
}

void capture_ended(CUstream stream) {
    const std::lock_guard lock(registry().mutex);
    const auto it = registry().begun.find(stream);
    if (it == registry().begun.end()) return;
    if (--it->second == 0) registry().begun.erase(it);
    --captures;
}

void capture_gone(CUstream stream) {
    const std::lock_guard lock(registry().mutex);
    const auto it = registry().begun.find(stream);
    if (it == registry().begun.end()) return;
    captures -= it->second;
    registry().begun.erase(it);
}

bool capturing_anywhere() {
    return captures.load(std::memory_order_relaxed) > 0;
}

NoCapture::NoCapture() {
    // Said before it is asked, as capture_begins() does, so that one of two sees the other.
    ++held_off;
    none_ = captures.load() == 0;
    if (!none_) --held_off;
}

NoCapture::~NoCapture() {
    if (none_) --held_off;
}

}  // namespace lms::engine

#include "tools/simcuda/driver/random.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/per_thread.h"

namespace simcuda::driver {

Random::Random(std::uint64_t who) : generator_(knobs().seed * 0x9E37'79B9'7F4A'7C15 + who) {}

void Random::delay() {
    if (knobs().delay_us != 0 && below(8) == 0) sleep_ns(1000 * below(knobs().delay_us + 1));
}

Random& thread_random() {
    static std::atomic<std::uint64_t> threads{1000};
    static auto& randoms = *new PerThread<Random>;
    return randoms.get([] { return std::make_unique<Random>(threads++); });
}

void sleep_ns(std::uint64_t ns) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

}  // namespace simcuda::driver

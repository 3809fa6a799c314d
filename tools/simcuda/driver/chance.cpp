#include "tools/simcuda/driver/chance.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/per_thread.h"

namespace simcuda::driver {

Chance::Chance(std::uint64_t who) : generator_(knobs().seed * 0x9E37'79B9'7F4A'7C15 + who) {}

void Chance::delay() {
    if (knobs().delay_us != 0 && below(8) == 0) sleep_ns(1000 * below(knobs().delay_us + 1));
}

Chance& thread_chance() {
    static std::atomic<std::uint64_t> threads{1000};
    static auto& chances = *new PerThread<Chance>;
    return chances.get([] { return std::make_unique<Chance>(threads++); });
}

void sleep_ns(std::uint64_t ns) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

}  // namespace simcuda::driver

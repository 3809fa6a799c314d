// What is random, from SIMCUDA_SEED: delays and choices that differ from seed to seed.
#pragma once

#include <cstdint>
#include <random>

namespace simcuda::driver {

// One thread's source.
class Random {
  public:
    explicit Random(std::uint64_t who);  // each user its own number, so that their sequences differ

    std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : generator_() % bound; }

    // Now and then (one time in eight), sleeps up to SIMCUDA_DELAY_US.
    void delay();

  private:
    std::mt19937_64 generator_;
};

Random& thread_random();  // the calling thread's own

void sleep_ns(std::uint64_t ns);

}  // namespace simcuda::driver

// A kernel that runs until it is told to end, or its time is over.
#pragma once

#include "tools/gpu_facts/card.h"

namespace facts {

class RunningKernel {
  public:
    // spin(): touches nothing. Enqueued in `stream`; the constructor returns when the kernel runs.
    RunningKernel(const Card& card, const Stream& stream, unsigned long long limit_ms);
    // keep_adding(): adds 1 to every word of the memory, round after round.
    RunningKernel(const Card& card, const Stream& stream, unsigned long long limit_ms, Address words,
                  std::uint64_t bytes);
    ~RunningKernel();
    RunningKernel(const RunningKernel&) = delete;
    RunningKernel& operator=(const RunningKernel&) = delete;

    void tell_to_end();
    // After the kernel has ended; of keep_adding() alone.
    double rounds() const;
    double longest_round_us() const;

  private:
    void await_start(const Stream& stream) const;

    Pinned page_{4096};
    volatile unsigned* const signals_ = static_cast<unsigned*>(page_.data);
    volatile unsigned long long* const results_ = static_cast<unsigned long long*>(page_.data) + 64;
};

}  // namespace facts

// Calls that come from libraries whose memory is left alone (LMS_EXEMPT): communication libraries register
// theirs with network cards and other GPUs.
#pragma once

#include <atomic>

namespace lms::access {

// Whether such a library is among the callers of this thread. Costs next to nothing where none is loaded,
// else an unwinding of the stack. No lock may be held: it takes the dynamic loader's. Never throws.
bool called_by_exempt() noexcept;

// Whether such a library launches a kernel. Its first launches tell, also where no such library is loaded
// yet: a library's kernels come with it. Each look takes the dynamic loader's lock, and an unwinding tens of
// microseconds. Any thread.
class ExemptKernel {
  public:
    // This thread launches it. As called_by_exempt().
    bool is_one() noexcept;
    // Without a look.
    bool is_known() const noexcept { return looks_left_.load(std::memory_order_relaxed) < 0; }

  private:
    static constexpr int kLooks = 8;
    std::atomic<int> looks_left_{kLooks};  // negative: it is one
};

}  // namespace lms::access

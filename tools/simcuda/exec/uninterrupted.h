// Keeps the running thread of a kernel from being stopped while it holds locks of the host's.
#pragma once

#include "tools/simcuda/exec/block.h"

namespace simcuda::exec {

class Uninterrupted {
  public:
    explicit Uninterrupted(sc_thread* thread) : guard_(Block::of(thread).guard()) {
        guard_.interruptible = false;
    }
    ~Uninterrupted() { set_interruptible(guard_, true); }
    Uninterrupted(const Uninterrupted&) = delete;
    Uninterrupted& operator=(const Uninterrupted&) = delete;

  private:
    Guard& guard_;
};

}  // namespace simcuda::exec

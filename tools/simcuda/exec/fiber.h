// Stacks of CUDA threads and the switch between them: a few nanoseconds, no system call, no signal mask.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simcuda::exec {

using StackPointer = void*;

// Saves the running stack's pointer to `*from` and continues on `to`. Only callee-saved integer registers are
// kept: translated code leaves the floating-point modes alone.
extern "C" void simcuda_switch_stack(StackPointer* from, StackPointer to);

// A stack pointer that, switched to for the first time, calls `entry(argument)` on the stack that ends at
// `top`. `entry` must never return.
StackPointer prepare_stack(std::uint64_t top, void (*entry)(void*), void* argument);

}  // namespace simcuda::exec

// The stack switch for x86-64.
#include "tools/simcuda/exec/fiber.h"

namespace simcuda::exec {

__asm__(R"(
    .text
    .globl simcuda_switch_stack
    .hidden simcuda_switch_stack
    .type simcuda_switch_stack, @function
simcuda_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size simcuda_switch_stack, . - simcuda_switch_stack

    .globl simcuda_start_stack
    .hidden simcuda_start_stack
    .type simcuda_start_stack, @function
simcuda_start_stack:
    movq %r12, %rdi
    callq *%r13
    ud2
    .size simcuda_start_stack, . - simcuda_start_stack
)");

extern "C" void simcuda_start_stack();

StackPointer prepare_stack(std::uint64_t top, void (*entry)(void*), void* argument) {
    auto* at = reinterpret_cast<std::uint64_t*>(top & ~std::uint64_t{15});
    *--at = 0;  // keeps the stack aligned at the call, and ends backtraces
    *--at = 0;
    *--at = reinterpret_cast<std::uint64_t>(&simcuda_start_stack);
    *--at = 0;                                          // rbp
    *--at = 0;                                          // rbx
    *--at = reinterpret_cast<std::uint64_t>(argument);  // r12
    *--at = reinterpret_cast<std::uint64_t>(entry);     // r13
    *--at = 0;                                          // r14
    *--at = 0;                                          // r15
    return at;
}

}  // namespace simcuda::exec

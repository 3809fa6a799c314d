// What ptx::Kernel::code points to: a kernel's native code, compiled when it is first asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace simcuda::exec {
struct sc_block;
struct sc_steps;
struct sc_thread;
}  // namespace simcuda::exec

namespace simcuda::ptx {

// The C text of one or more kernels and all they call, and the shared object made of it. Thread-safe.
class Unit {
  public:
    explicit Unit(std::string source);
    ~Unit();
    Unit(const Unit&) = delete;
    Unit& operator=(const Unit&) = delete;

    // Address of an exported symbol; compiles or loads the unit first. Null on failure, with the reason.
    void* symbol(const std::string& name, std::string& error);

  private:
    struct State;
    std::string source_;
    std::unique_ptr<State> state_;
};

struct NativeKernel {
    // Loop: entry(block, stack_limit) runs all threads of a block, one after another. Steps: entry(...) runs
    // some to where they wait next; from `at` if all are there, or those that wait for nothing from where
    // each is. Fibers: entry(thread) runs one, which may call what waits for others.
    enum class Mode { Loop, Steps, Fibers };
    using LoopEntry = void (*)(exec::sc_block*, std::uint64_t stack_limit);
    using StepsEntry = void (*)(exec::sc_block*, std::uint64_t stack_limit, exec::sc_steps*, void* kept,
                                std::uint32_t first, std::uint32_t end, std::uint32_t at);
    using FiberEntry = void (*)(exec::sc_thread*);

    Mode mode = Mode::Loop;
    std::uint64_t stack_bytes =
        0;  // per thread (in fibers) or block, with a reserve for what the compiler adds
    std::uint64_t kept_bytes = 0;  // of those: what the threads keep between two steps
    std::string symbol;
    std::shared_ptr<Unit> unit;

    void* entry(std::string& error) const { return unit->symbol(symbol, error); }
};

}  // namespace simcuda::ptx

// Runs a test body in a process of its own with the simulated driver loaded: knobs are read once per process
// and a failed context stays failed.
//
//   SIM_TEST("memory: what is beyond the capacity is refused", {{"SIMCUDA_MEMORY", "64M"}}) {
//       const Gpu gpu;
//       CUdeviceptr p = 0;
//       FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &p, 65 << 20);
//   }
#pragma once

#include <cuda.h>
#include <doctest/doctest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sim {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Forks, sets the environment, loads build/sim/libcuda.so.1, runs `body`. Returns what went wrong: "" if
// nothing did, or the failed expectations, or how the process died. `stderr_text`, if given, receives what it
// wrote there.
std::string run(const Environment& environment, void (*body)(), std::string* stderr_text = nullptr);

// Runs `body` in another process beside this one; before cuInit, after which a child has no driver. Its
// failed expectations are this test's, and join() notes it if it dies.
pid_t fork_body(const std::function<void()>& body);
void join(pid_t process);

// The driver's exported function of that name; an expectation fails if there is none.
void* symbol(const char* name);

// Inside a body: notes a failed expectation; the body goes on, as far as it can.
void failed(const char* file, int line, const std::string& what);
std::string error_text(CUresult result);

// Ends the body at once, by throwing Stop; a thread a body starts must catch it.
struct Stop {};
[[noreturn]] void stop();

// cuInit and the primary context of device 0, made current.
struct Gpu {
    Gpu();
    CUdevice device = 0;
    CUcontext context = nullptr;
};

// Bytes that depend on position and seed.
std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed);

std::size_t free_bytes();                                                  // cuMemGetInfo
std::vector<std::uint8_t> read_back(CUdeviceptr from, std::size_t bytes);  // synchronous

bool cpu_can_read(std::uint64_t address);

}  // namespace sim

#define SIM_TEXT_(x) #x
#define SIM_TEXT(x) SIM_TEXT_(x)

// The driver's function, by the name cuda.h uses (its macros choose the ABI version).
#define CU(function) (reinterpret_cast<decltype(&::function)>(::sim::symbol(SIM_TEXT(function))))

#define EXPECT(condition)                                                \
    do {                                                                 \
        if (!(condition)) ::sim::failed(__FILE__, __LINE__, #condition); \
    } while (0)

// The call answers the code.
#define FAILS(code, function, ...)                                                                          \
    do {                                                                                                    \
        const CUresult sim_result = CU(function)(__VA_ARGS__);                                              \
        if (sim_result != (code))                                                                           \
            ::sim::failed(__FILE__, __LINE__,                                                               \
                          SIM_TEXT(function) " -> " + ::sim::error_text(sim_result) + ", expected " #code); \
    } while (0)

// The call succeeds; the body ends if it does not.
#define OK(function, ...)                                                                                 \
    do {                                                                                                  \
        const CUresult sim_result = CU(function)(__VA_ARGS__);                                            \
        if (sim_result != CUDA_SUCCESS) {                                                                 \
            ::sim::failed(__FILE__, __LINE__, SIM_TEXT(function) " -> " + ::sim::error_text(sim_result)); \
            ::sim::stop();                                                                                \
        }                                                                                                 \
    } while (0)

#define SIM_NAME_(a, b) a##b
#define SIM_NAME(a, b) SIM_NAME_(a, b)
#define SIM_TEST(name, ...) SIM_TEST_(name, SIM_NAME(sim_body_, __COUNTER__), __VA_ARGS__)
#define SIM_TEST_(name, body, ...)                                     \
    static void body();                                                \
    TEST_CASE(name) {                                                  \
        CHECK(::sim::run(::sim::Environment __VA_ARGS__, body) == ""); \
    }                                                                  \
    static void body()

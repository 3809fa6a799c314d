// Runs a test body in a process of its own, with the shim preloaded over the simulated driver.
//
//   FAMILY_TEST("a copy of an evicted buffer") {
//       const Gpu gpu;
//       Buffer a(kBuffer, 1);
//       Crowd crowd;
//       crowd.evict(a);
//       OK(cuMemcpyDtoH_v2, ...);
//       EXPECT(a.holds(1));
//   }
//
// Each body runs twice, where evicted memory stays addressable and where it does not. The GPU has 4 MiB,
// chunks are of 64 KiB and more, and every buffer of 16 KiB and more is managed. Names are the driver's
// exported ones, with their version.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shim/device/cuda_api.h"
#include "tests/entry/where.h"

namespace rig {

using Environment = std::map<std::string, std::string>;

// Which driver stands behind the shim: the simulated one, or one before it that stands in for what it lacks
// (overlay/), or one that has the entry points of CUDA 12.2 alone.
enum class Driver { Simulated, Overlay, Old };

struct Outcome {
    std::string failures;  // "" if there were none, or how the process died
    std::string err;       // what it wrote to stderr
};
Outcome run(const std::string& body, Driver driver, const Environment& environment);

// Runs `body` both ways; fails the running test if an expectation did. Returns what the two wrote to stderr.
std::string run_both(const std::string& body, Driver driver, const Environment& environment);

using Body = void (*)();
struct Registration {
    Registration(const char* name, Body body);
};
int run_here(const std::string& name);  // in the child

// ---- inside a body

void failed(const char* file, int line, const std::string& what);
std::string error_text(CUresult result);
[[noreturn]] void stop();

// The shim's function of that name, as the program is given it.
void* function(const char* name);

constexpr std::size_t kMiB = 1 << 20;
using where::kGranule;
constexpr std::size_t kBuffer = kMiB / 2;
constexpr std::uint32_t kWords = kBuffer / sizeof(std::uint32_t);

// cuInit and the primary context of device 0, made current.
struct Gpu {
    Gpu();
    CUdevice device = 0;
    CUcontext context = nullptr;
};

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed);

// Whether all of [address, address + bytes) has GPU memory behind it now, or none of it has.
bool on_device(CUdeviceptr address, std::size_t bytes);
bool off_device(CUdeviceptr address, std::size_t bytes);

// Has it brought in by work in `stream` that changes nothing.
void bring_in(CUdeviceptr address, std::size_t bytes, CUstream stream);

// A buffer from cuMemAlloc.
class Buffer {
  public:
    explicit Buffer(std::size_t bytes);
    Buffer(std::size_t bytes, std::uint32_t seed);  // filled with that pattern
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    void fill(std::uint32_t seed);
    // Whether it reads as pattern(bytes, seed).
    bool holds(std::uint32_t seed) const;
    std::vector<std::uint8_t> read() const;
    CUdeviceptr at(std::size_t offset = 0) const { return address_ + offset; }
    std::size_t bytes() const { return bytes_; }
    bool resident() const { return on_device(address_, bytes_); }
    bool evicted() const { return off_device(address_, bytes_); }

  private:
    CUdeviceptr address_ = 0;
    std::size_t bytes_;
};

// Buffers of more than the GPU's memory.
class Crowd {
  public:
    Crowd();
    ~Crowd();
    Crowd(const Crowd&) = delete;
    Crowd& operator=(const Crowd&) = delete;
    // Uses them all, so that others have to make room.
    void press();
    // The same until `buffer` is out; an expectation fails if it stays.
    void evict(const Buffer& buffer);
    // Brings all of it in.
    void bring_in(const Buffer& buffer);
    // Evicts it and brings its first half in again.
    void evict_half(const Buffer& buffer);

  private:
    std::vector<CUdeviceptr> buffers_;
};

// The kernels of rig.cpp's PTX, in the current context.
CUmodule load_kernels();
// One of them, loaded into the context that is current at the first call.
CUfunction kernel(const char* name);
// Launches one with a pointer per argument, a thread for each of `n` words.
template <typename... Arguments>
CUresult launch(const char* name, std::size_t n, CUstream stream, const Arguments&... arguments) {
    void* parameters[] = {const_cast<Arguments*>(&arguments)...};
    using Launch = decltype(&::cuLaunchKernel);
    return reinterpret_cast<Launch>(function("cuLaunchKernel"))(kernel(name),
                                                                static_cast<unsigned>((n + 255) / 256), 1, 1,
                                                                256, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace rig

#define RIG_TEXT_(x) #x
#define RIG_TEXT(x) RIG_TEXT_(x)

#define CU(name) (reinterpret_cast<decltype(&::name)>(::rig::function(#name)))

#define EXPECT(...)                                                          \
    do {                                                                     \
        if (!(__VA_ARGS__)) ::rig::failed(__FILE__, __LINE__, #__VA_ARGS__); \
    } while (0)

// The call answers the code.
#define FAILS(code, name, ...)                                                                          \
    do {                                                                                                \
        const CUresult rig_result = CU(name)(__VA_ARGS__);                                              \
        if (rig_result != (code))                                                                       \
            ::rig::failed(__FILE__, __LINE__,                                                           \
                          #name " -> " + ::rig::error_text(rig_result) + ", expected " RIG_TEXT(code)); \
    } while (0)

// The call succeeds; the body ends if it does not.
#define OK(name, ...)                                                                        \
    do {                                                                                     \
        const CUresult rig_result = CU(name)(__VA_ARGS__);                                   \
        if (rig_result != CUDA_SUCCESS) {                                                    \
            ::rig::failed(__FILE__, __LINE__, #name " -> " + ::rig::error_text(rig_result)); \
            ::rig::stop();                                                                   \
        }                                                                                    \
    } while (0)

namespace rig {
inline CUstream new_stream() {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
}
}  // namespace rig

#define RIG_JOIN_(a, b) a##b
#define RIG_JOIN(a, b) RIG_JOIN_(a, b)

// A body for RUN_BODY.
#define BODY(name)                                                                 \
    static void body_##name();                                                     \
    static const ::rig::Registration register_##name(RIG_TEXT(name), body_##name); \
    static void body_##name()

// `id`, where there is one, is by what tests/hook_mutation/held.tsv knows the test.
#define RIG_TEST_(title, id, body, driver)                                                \
    static void body();                                                                   \
    static const ::rig::Registration RIG_JOIN(body, _registration)(__FILE__ title, body); \
    TEST_CASE(title* doctest::test_suite("" id)) {                                        \
        ::rig::run_both(__FILE__ title, driver, {});                                      \
    }                                                                                     \
    static void body()
#define FAMILY_TEST(title, ...) \
    RIG_TEST_(title, __VA_ARGS__, RIG_JOIN(family_, __COUNTER__), ::rig::Driver::Simulated)
#define OVERLAY_TEST(title, ...) \
    RIG_TEST_(title, __VA_ARGS__, RIG_JOIN(family_, __COUNTER__), ::rig::Driver::Overlay)

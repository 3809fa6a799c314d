// Where the port's rules are tried out: a port, and a program's side of the same GPU. Each case runs on four
// backends, the fake GPU and the simulated driver, with and without host memory that can be mapped.
//
//   CONTRACT_TEST("an unmapped address can be mapped again") { EXPECT(backend.port().unmap(...) ==
//   CUDA_SUCCESS); }
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shim/device/port.h"

namespace lms::contract {

using device::Address;
using device::Direction;
using device::Place;
using device::Port;
using Words = std::vector<std::uint32_t>;
using Environment = std::vector<std::pair<std::string, std::string>>;

class Backend {
  public:
    virtual ~Backend() = default;
    virtual Port& port() = 0;

    virtual CUstream stream() = 0;
    // A kernel that adds 1 to each of `count` words.
    virtual void bump(CUstream stream, Address address, std::uint32_t count) = 0;
    // Nothing that `stream` is given from now on begins before the function returned is called.
    virtual std::function<void()> block(CUstream stream) = 0;
    // At once, through the program's address, while no work of the device is under way.
    virtual void write(Address address, const Words& words) = 0;
    virtual Words read(Address address, std::uint32_t count) = 0;
    // The CPU's own look; a GPU's address where the CPU has no business gives nothing.
    virtual bool cpu_reads(Address address, std::uint32_t& word) = 0;
};

// Runs `body` on every backend. Returns what went wrong, each line beginning with its backend; "" if nothing
// did.
std::string on_every_backend(void (*body)(Backend&));
// In a process of its own, over the simulated driver alone, with these variables set.
std::string on_driver(const Environment& environment, void (*body)(Backend&));

// Inside a body: notes a failed expectation; the body goes on. Any thread.
void failed(const char* file, int line, const std::string& what);
// Ends the body.
[[noreturn]] void stop();

// Waits for an event the way the engine does; fails the body if that never ends.
void await(Port& port, CUevent event);

// A reserved range with device or host memory mapped at its start, and an alias of the same memory; taken
// away in the end.
class Mapped {
  public:
    Mapped(Port& port, Place place, std::uint64_t bytes);
    ~Mapped();
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;

    Port& port;
    const Place place;
    const std::uint64_t bytes;
    Address address = 0;
    Address alias = 0;
    CUmemGenericAllocationHandle handle{};
};

Words pattern(std::uint32_t seed, std::uint32_t count);
Words plus(Words words, std::uint32_t summand);

}  // namespace lms::contract

#define EXPECT(condition)                                                          \
    do {                                                                           \
        if (!(condition)) ::lms::contract::failed(__FILE__, __LINE__, #condition); \
    } while (0)

#define NEED(condition)                                              \
    do {                                                             \
        if (!(condition)) {                                          \
            ::lms::contract::failed(__FILE__, __LINE__, #condition); \
            ::lms::contract::stop();                                 \
        }                                                            \
    } while (0)

#define CONTRACT_NAME_(a, b) a##b
#define CONTRACT_NAME(a, b) CONTRACT_NAME_(a, b)
#define CONTRACT_TEST(name) CONTRACT_TEST_(name, CONTRACT_NAME(contract_body_, __COUNTER__))
#define CONTRACT_TEST_(name, body)                            \
    static void body(::lms::contract::Backend& backend);      \
    TEST_CASE(name) {                                         \
        CHECK(::lms::contract::on_every_backend(body) == ""); \
    }                                                         \
    static void body([[maybe_unused]] ::lms::contract::Backend& backend)
#define DRIVER_TEST(name, ...) DRIVER_TEST_(name, CONTRACT_NAME(contract_body_, __COUNTER__), __VA_ARGS__)
#define DRIVER_TEST_(name, body, ...)                               \
    static void body(::lms::contract::Backend& backend);            \
    TEST_CASE(name) {                                               \
        CHECK(::lms::contract::on_driver(__VA_ARGS__, body) == ""); \
    }                                                               \
    static void body([[maybe_unused]] ::lms::contract::Backend& backend)

// What a trace tells, as plain structs. Times are CLOCK_MONOTONIC nanoseconds (now_ns), sizes bytes; `device`
// is the CUDA ordinal; allocations and chunks have the numbers the residency map gave them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace lms::trace {

std::uint64_t now_ns();

// A managed buffer came to be.
struct Allocation {
    int device;
    std::uint32_t allocation;
    std::uint64_t address;
    std::uint64_t bytes;
    std::uint64_t at_ns;
    std::span<const std::string> call_site;  // innermost first, as call_site() gives it
};

struct Free {
    int device;
    std::uint32_t allocation;
    std::uint64_t at_ns;
};

// The launch call, from the app's call to the return of the driver's.
struct Launch {
    int device;
    std::string_view kernel;
    std::uint64_t stream;  // the app's handle
    std::span<const std::uint32_t> allocations;
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

enum class Direction : std::uint8_t { In, Out };

// Why a chunk was moved, and why a thread waited. What the trace calls them stands in chrome.cpp.
enum class MoveReason : std::uint8_t {
    Needed,    // by work that names it
    MakeRoom,  // for what is
};
enum class StallReason : std::uint8_t {
    Buffers,  // a launch, for what it names
};

// A chunk's bytes were copied to the GPU (In) or to the host (Out).
struct Move {
    int device;
    Direction direction;
    std::uint32_t allocation;
    std::uint32_t chunk;
    std::uint64_t bytes;
    MoveReason reason;
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

// A thread of the app waited because of the shim.
struct Stall {
    int device;
    StallReason reason;
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

// Where the managed bytes are from here on.
struct Residency {
    int device;
    std::uint64_t resident_bytes;
    std::uint64_t host_bytes;
    std::uint64_t at_ns;
};

using Event = std::variant<Allocation, Free, Launch, Move, Stall, Residency>;

}  // namespace lms::trace

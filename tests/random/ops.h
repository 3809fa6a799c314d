// A program: a list of operations, each one line of text. Any subset of one is a program too, which is what
// makes a failing one easy to shrink: ordering is not written down but added when it runs (order.h), and an
// operation that makes no sense where it stands (a buffer that is not there) does nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace rnd {

enum class Verb : std::uint8_t {
#define VERB(name, arguments) name,
#include "tests/random/ops.def"
#undef VERB
};

constexpr unsigned kThreads = 3;
constexpr unsigned kBuffers = 96;
constexpr unsigned kGraphs = 6;
constexpr unsigned kDevices = 2;
// Streams: the first are made and destroyed by programs, then the legacy one and that of the thread itself.
constexpr unsigned kOwnStreams = 8;
constexpr unsigned kLegacy = 8;
constexpr unsigned kPerThread = 9;

struct Op {
    std::uint8_t thread = 0;
    Verb verb = Verb::open;
    std::array<std::uint32_t, 8> a{};
};

using Program = std::vector<Op>;

const char* name_of(Verb verb);

// "1 mix 2 40 3 7 0 512 99": the thread, the verb, its arguments.
std::string print(const Op& op);
// False if the line is none. Comments (#) and empty lines are no operations: `parse_program` leaves them out.
bool parse(const std::string& line, Op& op);
bool parse_program(const std::string& path, Program& program, std::string& problem);

// What follows from a seed alone; about `count` operations.
Program generate(std::uint64_t seed, unsigned count);

// Whether it launches a kernel that is given the addresses of its buffers.
bool is_kernel(const Op& op);

// A value that depends on every argument of the operation and on `salt`, not on where it stands.
std::uint32_t hash(const Op& op, std::uint32_t salt);

}  // namespace rnd

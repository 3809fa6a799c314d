// What a program has made: buffers with their expected bytes, streams, captures, graphs.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/random/order.h"

namespace rnd {

// A program asks for one of the first; a Plain one may become a Part of a block that the program divides
// itself.
enum Kind : std::uint32_t { Plain, Async, Pitched, Managed, Pinned, FromPool, Own, kKinds, Part };

// Of a buffer that the program maps itself.
struct Piece {
    CUmemGenericAllocationHandle handle;
    std::uint32_t bytes;
};

// All that there is of such memory, whatever has failed.
struct OwnMemory {
    std::mutex mutex;
    std::set<CUmemGenericAllocationHandle> handles;
    std::map<CUdeviceptr, std::uint32_t> mapped;    // bytes
    std::map<CUdeviceptr, std::uint32_t> reserved;  // bytes
};

// A block that a program divides among its buffers: each has its cell, and lies somewhere in it.
struct Divided {
    static constexpr std::uint32_t kCell = 24 << 10, kCells = 24;  // bytes

    std::mutex mutex;
    CUdeviceptr block = 0;  // 0: not made
};

struct Buffer {
    std::uint64_t born = 0;  // 0: there is none; else which of all buffers that had this number
    std::uint32_t kind = Plain;
    unsigned device = 0;
    CUdeviceptr address = 0;
    std::uint32_t bytes = 0;
    std::vector<std::uint8_t> expected;
    std::vector<Piece> pieces;
    Uses uses;

    bool alive() const { return born != 0; }
    bool of_host() const { return kind == Managed || kind == Pinned; }
    std::uint32_t* words() { return reinterpret_cast<std::uint32_t*>(expected.data()); }
    std::uint32_t count() const { return bytes / 4; }
};

struct Use {
    std::uint32_t buffer;
    Mode mode;
    std::uint64_t born = 0;  // checked where it is not 0
};
using UseList = std::vector<Use>;

// An operation whose arguments make sense: clipped to the buffers they name.
struct Step {
    Op op;
    UseList uses;
    CUgraphNode node = nullptr;
};

struct Capture {
    unsigned origin = 0;
    unsigned thread = 0;
    std::uint32_t mode = 0;
    View view;
    std::array<std::uint32_t, kSlots> count{};
    std::map<std::uint32_t, Uses> uses;
    std::set<unsigned> members;
    std::vector<Step> steps;
    std::map<std::uint32_t, std::uint32_t> kept;  // bytes of buffers that copies and sets name
};

struct Stream {
    bool alive = false;
    bool blocking = true;
    CUstream handle = nullptr;
    Capture* capture = nullptr;
    std::uint64_t life = 0;                      // which of all that had this number
    std::array<std::uint32_t, kThreads> last{};  // what had been given to the one before
};

struct Graph {
    bool alive = false;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    unsigned device = 0;
    std::vector<Step> steps;
};

}  // namespace rnd

// The events of a trace, as plain structs. Times are CLOCK_MONOTONIC nanoseconds (now_ns), sizes bytes;
// `device` is the CUDA ordinal; allocations and chunks have the numbers the residency map gave them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "shim/util/clock.h"

namespace lms::trace {

using util::now_ns;

// A GPU has managed memory from here on.
struct Gpu {
    int device;
    std::string_view name;
    std::uint64_t total_bytes;
    std::uint64_t granularity;  // of chunks
    bool maps_host;             // evicted memory stays addressable
    std::uint64_t at_ns;
};

struct Piece {
    std::uint32_t chunk;
    std::uint64_t bytes;
    bool resident;
};

// A managed buffer came to be.
struct Allocation {
    int device;
    std::uint32_t allocation;
    std::uint64_t address;
    std::uint64_t bytes;  // as asked for
    std::uint64_t at_ns;
    std::span<const std::string> call_site;  // innermost first, as call_site() gives it
    std::span<const Piece> pieces = {};      // in address order
};

struct Free {
    int device;
    std::uint32_t allocation;
    std::uint64_t at_ns;
};

// The program has freed it in the order of a stream: nothing names it again, and nothing of it is copied.
// Free follows when its memory is released, or becomes a new buffer's, which takes its number.
struct StreamFree {
    int device;
    std::uint32_t allocation;
    std::uint64_t stream;  // the program's handle
    std::uint64_t at_ns;
};

// A chunk that work names.
struct Touched {
    std::uint32_t chunk;
    std::uint32_t allocation;
    bool overwritten = false;  // whole, and not read
    bool may_stay = false;     // used in host memory, if it is there
    bool in_place = false;     // was used there
    bool only_read = false;    // nothing of it is written
};

// From where to where a copy of the program's goes.
enum class CopyWay : std::uint8_t {
    Unknown,  // or it is none
    ToGpu,
    ToHost,
    OnGpu,  // from device memory to device memory
};
inline constexpr std::size_t kCopyWays = 4;
struct Copied {
    CopyWay way = CopyWay::Unknown;
    std::uint64_t bytes = 0;
};

// Work is submitted: a launch, or a copy or set of the program's own. From the program's call to the return
// of the driver's.
struct Launch {
    int device;
    std::string_view kernel;           // empty: a copy or set
    std::uint64_t stream;              // the program's handle
    std::span<const Touched> touched;  // in the order of the arguments, each once
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
    bool writes_unseen = false;  // what it does not name, perhaps
    Copied copied = {};          // by it
};

enum class Direction : std::uint8_t { In, Out };

// Why a chunk was moved, and why a thread waited. What these are called stands in tools/lms/trace_names.h.
enum class MoveReason : std::uint8_t {
    Needed,    // by work that names it, or will
    MakeRoom,  // for what is
};
enum class StallCause : std::uint8_t {
    Turn,     // another thread moves
    CopyOut,  // what has to go is copied to the host
    InUse,    // nothing may go, or come in, that work still uses
    Opaque,   // work that may reach anything is unfinished
    Mapping,  // memory is mapped and copies are enqueued
};
inline constexpr std::size_t kStallCauses = 5;

// A chunk's bytes were copied to the GPU (In) or to the host (Out); 0 bytes: its host copy was good still.
struct Move {
    int device;
    Direction direction;
    std::uint32_t allocation;
    std::uint32_t chunk;
    std::uint64_t bytes;
    MoveReason reason;
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
    bool timed =
        false;  // as the device measured it; else from its submission until a thread saw that it was complete
};

// A thread of the program waited because of the shim.
struct Stall {
    int device;
    StallCause cause;         // that took longest
    std::string_view kernel;  // that waited; empty: a copy, a set or the like
    std::uint64_t bytes;      // that it lacked at first
    std::span<const Touched> lacked;
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

// Where the managed bytes are from here on, and the memory that they may fill.
struct Residency {
    int device;
    std::uint64_t resident_bytes;
    std::uint64_t host_bytes;
    std::uint64_t at_ns;
    std::uint64_t budget_bytes = 0;
};

// The program has named what a thread of it does (<lms/lms.h>).
struct Region {
    std::string_view name;
    std::uint32_t thread;  // of the process, as the system numbers it
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

// A kernel ran on the device, as that saw it. A sample: of all launches one in `one_in`, on the average.
struct KernelTime {
    int device;
    std::string_view kernel;
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
    std::uint32_t one_in;
};

// A copy of the program's own ran on the device, as that saw it.
struct CopyTime {
    int device;
    Copied copied;
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

// The measured speed of the shim's copies, until the next event of this kind. 0: none was measured that way.
struct LinkSpeeds {
    int device;
    std::uint64_t in_bytes_per_s;
    std::uint64_t out_bytes_per_s;
    std::uint64_t at_ns;
};

// Events are missing here: they came faster than they could be written.
struct Dropped {
    std::uint64_t events;
};

// The shim sees that work is over: a launch, and all that its stream was given before. Work that the program
// submitted later was not, unless such an event follows.
struct WorkOver {
    int device;
    std::uint64_t launched_ns;  // Launch::begin_ns of the last
    std::uint64_t at_ns;
};

// A thread of the program waited for GPUs, in a call that it made for that. What is foretold comes in
// meanwhile.
struct ProgramWait {
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

// What a GPU's memory holds from here on that is not managed: contexts, code, small allocations, and what
// other processes have.
struct Unmanaged {
    int device;
    std::uint64_t bytes;
    std::uint64_t at_ns;
};

using Event = std::variant<Allocation, Free, Launch, Move, Stall, Residency, Gpu, Dropped, Region, WorkOver,
                           KernelTime, StreamFree, LinkSpeeds, CopyTime, ProgramWait, Unmanaged>;

// When it began; of Dropped, which has no time, 0.
std::uint64_t begin_of(const Event& event);

}  // namespace lms::trace

// What a trace adds up to.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/lms/trace_file.h"

namespace lms::tool {

// Buffers of one size from one place in the program: one call stack.
struct BufferGroup {
    int device = 0;
    std::uint64_t bytes = 0;  // of each
    // Innermost first; empty: not known. By name it is the innermost frame that not all buffers have: what
    // allocates for everybody tells nothing. If Python called, of Python's frames.
    std::span<const std::string> frames;  // whose they are must stay
    std::string call_site;
    std::uint32_t number = 0;  // by when it was first seen
    std::uint64_t buffers = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::uint64_t stall_ns = 0;  // of waits for work that lacked some, by the share of its bytes

    std::uint64_t moved() const { return bytes_in + bytes_out; }
    // How often each of their bytes came in.
    double round_trips() const {
        return static_cast<double>(bytes_in) /
               static_cast<double>(std::max<std::uint64_t>(bytes * buffers, 1));
    }
};

struct GpuUse {
    std::string name;
    std::uint64_t budget_bytes = 0;  // as of the last
    std::uint64_t peak_allocated_bytes = 0;
    std::uint64_t most_beyond_bytes = 0;  // the budget
};

// Of copies one way.
struct LinkUse {
    std::uint64_t copies = 0;
    std::uint64_t bytes = 0;
    std::uint64_t timed_bytes = 0;  // of them, those whose time the device told
    std::uint64_t timed_ns = 0;

    // As the device saw it; nothing where it saw none.
    std::optional<double> bytes_per_s() const {
        if (timed_ns == 0) return {};
        return static_cast<double>(timed_bytes) * 1e9 / static_cast<double>(timed_ns);
    }
};

// So many bytes of a group's buffers came to the GPU, or went.
struct ResidentChange {
    std::uint64_t at_ns;
    std::uint32_t group;  // by when it was first seen
    std::int64_t bytes;
};

// A kernel, and what the samples of its time on the device tell.
struct KernelUse {
    std::uint64_t launches = 0;
    std::uint64_t samples = 0;
    std::uint64_t sampled_ns = 0;

    double mean_ns() const { return static_cast<double>(sampled_ns) / static_cast<double>(samples); }
    // Of all its launches, taken for like the samples; 0 without any.
    double ns() const { return samples == 0 ? 0 : mean_ns() * static_cast<double>(launches); }
};

// What the program has named alike (<lms/lms.h>), and what happened meanwhile, in whichever thread.
struct RegionUse {
    std::uint64_t times = 0;
    std::uint64_t ns = 0;
    std::uint64_t stall_ns = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
};

struct Analysis {
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
    std::uint64_t launches = 0;
    std::uint64_t in_place_launches = 0;
    LinkUse in;
    LinkUse out;
    std::array<LinkUse, trace::kCopyWays> own_copies;  // the program's, by trace::CopyWay
    std::uint64_t stalls = 0;
    std::uint64_t stall_ns = 0;
    std::array<std::uint64_t, trace::kStallCauses> stall_ns_by_cause{};
    std::map<std::string, std::uint64_t> stall_ns_by_kernel;
    std::map<std::string, KernelUse> kernels;  // by name
    std::map<int, GpuUse> gpus;
    std::map<std::string, RegionUse> regions;
    std::vector<BufferGroup> groups;  // those that moved most first
    std::vector<BufferGroup> places;  // the same, those of one name together
    std::vector<ResidentChange> resident_changes;

    double seconds() const { return static_cast<double>(end_ns - begin_ns) / 1e9; }
    std::uint64_t moved() const { return in.bytes + out.bytes; }
};

inline constexpr std::string_view kUnknownPlace = "an unknown place";

// Gives each that has frames its name: the innermost frame that they do not all share, of Python's the
// innermost from there on that is in no installed package.
void name_places(std::span<BufferGroup> groups);

Analysis analyse(const Trace& trace);
// Those that took longest first.
std::vector<std::pair<std::string, KernelUse>> kernels_by_time(const Analysis& all);
std::vector<std::pair<std::string, RegionUse>> regions_by_time(const Analysis& all);
// How much of the run kernels took. Of several at once each counts: it may be above 1. None without samples.
std::optional<double> busy_share(const Analysis& all);
// Gives the same places the same names in both.
void name_alike(Analysis& one, Analysis& other);

}  // namespace lms::tool

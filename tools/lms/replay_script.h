// What a traced program asked of one GPU's memory, cut into the chunks that it would have had with another
// budget.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/lms/trace_file.h"

namespace lms::tool {

struct ReplayScript {
    // Numbered as they come, and never again.
    struct Buffer {
        std::uint64_t asked_bytes;
        std::vector<std::uint64_t> chunk_bytes;
        std::uint32_t first_chunk;
    };
    struct Touch {
        std::uint32_t chunk;
        bool overwritten;
        bool may_stay;
        bool only_read;
        std::uint32_t next_work;  // that touches it; kNever
    };
    struct Step {
        // StreamFree: it goes when its stream has come there, or when another of its size is given its
        // memory: Revive.
        enum class Kind : std::uint8_t { Allocate, Free, StreamFree, Revive, Work, Budget } kind;
        std::uint32_t buffer = 0;          // that comes or goes
        std::uint32_t first = 0, end = 0;  // of work, in `touches`
        std::uint64_t budget_bytes = 0;    // from here on
        // Of work: how long the program was on its own then, without what it waited for the shim; whether it
        // waited for the GPU, and how long it was on its own from then on until it submitted the next.
        std::uint64_t took_ns = 0;
        bool waits = false;
        std::uint64_t after_ns = 0;
        std::uint64_t ran_ns = 0;  // on the GPU
        std::uint32_t stream = 0;  // of work, of a StreamFree, or of a Revive
        std::uint32_t over = 0;    // so many works were over when it had waited
        std::uint64_t code = 0;    // of work: the same for the same kernel; 0: a copy or set
        trace::CopyWay copies = trace::CopyWay::Unknown;  // the program's own
        bool writes_unseen = false;                       // work may write what it does not name
    };
    static constexpr std::uint32_t kNever = ~std::uint32_t{0};

    std::uint64_t granularity = 0;
    bool maps_host = true;
    std::vector<Buffer> buffers;
    std::vector<Touch> touches;
    std::vector<Step> steps;
    std::uint32_t chunks = 0;
    std::uint32_t streams = 1;

    std::span<const Touch> touched_by(const Step& step) const {
        return std::span(touches).subspan(step.first, step.end - step.first);
    }
};

// The GPUs that the trace tells of.
std::vector<int> devices_of(const Trace& trace);
// The memory that managed buffers could fill when it was last told; nothing if it never was.
std::optional<std::uint64_t> budget_of(const Trace& trace, int device);
// Bytes a second of the shim's copies that way, where the device timed some; else what the trace tells of
// those before it; else nothing.
std::optional<double> link_of(const Trace& trace, trace::Direction direction);

// Seconds in which a chunk's addresses came to lead elsewhere; nothing if none went without a copy.
std::optional<double> remap_of(const Trace& trace);

// With that budget, or as it changed while the program ran.
ReplayScript script_of(const Trace& trace, int device, std::optional<std::uint64_t> budget_bytes);

}  // namespace lms::tool

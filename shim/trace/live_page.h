// Counters and levels of a process under the shim, in a page that it shares with tools through a file. So
// they outlive it, however it ends. docs/reference/counters.md has the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "shim/trace/process_name.h"
#include "shim/trace/stats.h"

namespace lms::trace {

// Where the managed bytes of one GPU are. Any thread; nothing is ordered by them.
struct LiveGpu {
    Counters::Counter used = 0;             // 1: this GPU has managed memory, and the rest means something
    Counters::Counter budget_bytes = 0;     // device memory that they may take
    Counters::Counter allocated_bytes = 0;  // by the program, now
    Counters::Counter peak_allocated_bytes = 0;  // most at once
    Counters::Counter most_beyond_bytes = 0;     // by how much they were beyond the budget at most
    Counters::Counter resident_bytes = 0;
    Counters::Counter host_bytes = 0;
    // Where other processes share it: what may be filled by this one's share, and least at any time. 0: none
    // do, none ever did.
    Counters::Counter granted_bytes = 0;
    Counters::Counter least_granted_bytes = 0;
    Counters::Counter turn_wait_ns = 0;  // for turns on it, of all threads
    // How fast the device was last seen to copy; 0: not known, for nothing was copied.
    Counters::Counter in_bytes_per_s = 0;
    Counters::Counter out_bytes_per_s = 0;
};

// A request of a tool (`lms set`): the settings from now on. The process acts upon those that differ from
// before.
struct LiveRequest {
    Counters::Counter number = 0;       // counts them; written last
    Counters::Counter taken = 0;        // the last that the process has acted upon
    Counters::Counter limit_bytes = 0;  // what managed memory may take of each GPU; 0: as it began
    Counters::Counter log_level = 0;    // log::Level + 1; 0: as it began
    Counters::Counter paused = 0;       // 1: its memory leaves the GPU, and its work waits
    char policy[512] = {};              // as LMS_POLICY, ends in 0; empty: as it began
    char share[128] = {};               // as LMS_SHARE, likewise
    Counters::Counter trace = 0;  // the number of the request that was the last about a trace (`lms trace`)
    Counters::Counter trace_bytes = 0;   // of each of its files; 0: any
    Counters::Counter trace_answer = 0;  // what came of it: 0 or an errno
    char trace_path[1024] = {};          // to begin, absolute, ends in 0; empty: to end
};

// A buffer that has moved, since it was allocated.
struct LiveBuffer {
    static constexpr std::size_t kSiteBytes = 464;

    Counters::Counter number = 0;  // the program's first buffer is 1; 0: none is here
    Counters::Counter device = 0;  // CUDA ordinal
    Counters::Counter bytes = 0;   // as asked for
    Counters::Counter bytes_in = 0;
    Counters::Counter bytes_out = 0;
    Counters::Counter freed = 0;  // 1: the program has freed it
    // Its call site, if a trace was written at its allocation: frames, innermost first, a line each, as many
    // as there is room for; ends in 0.
    char call_site[kSiteBytes] = {};
};

// The buffers that move most (hot_buffers.h), in no order. Which they are changes while `changes` is odd.
struct LiveBuffers {
    static constexpr std::size_t kCount = 16;

    Counters::Counter changes = 0;
    LiveBuffer buffers[kCount];
};

struct LivePage {
    static constexpr std::uint64_t kMagic = 0x6576696c20736d6c;  // "lms live"
    static constexpr std::uint32_t kVersion = 9;                 // another: the rest is laid out otherwise
    static constexpr std::size_t kGpus = 64;                     // by CUDA ordinal

    std::uint64_t magic = kMagic;
    std::uint32_t version = kVersion;
    std::uint32_t bytes = 0;  // of the page
    ProcessName process;
    ProcessName run;                 // the `lms run` that waits for it to end
    std::uint64_t began_ns = 0;      // CLOCK_MONOTONIC, which is the machine's
    Counters::Counter ended_ns = 0;  // 0: runs, or was killed
    char program[256] = {};          // ends in 0, as the next
    char policy[512] = {};           // LMS_POLICY
    char stats_path[1024] = {};      // where the counters are to go in the end, absolute; empty: nowhere

    Counters counters;
    LiveGpu gpus[kGpus];
    LiveRequest request;
    LiveBuffers moving;
};

// This process's own. Its place is fixed, so that counting needs no pointer; publish() puts the shared page
// there. A child of fork gets a private one.
inline constinit struct alignas(4096) OwnPage { LivePage page; } own_page;
inline Counters& counters() {
    return own_page.page.counters;
}
// For a device without a place there: one that no tool reads.
LiveGpu& live_gpu(int device);

// An object with one number per counter and the levels of each GPU. May throw std::bad_alloc.
nlohmann::ordered_json to_json(const LivePage& page);
// Puts it into the file, indented, of which it is the whole from then on. 0 or an errno.
int write_stats(const LivePage& page, const std::string& path) noexcept;
// Replaces the contents of the file that the page names, if it still is a file. A pipe gets the counters at
// the end alone; by then it may belong to another process.
void replace_stats(const LivePage& page) noexcept;

// Moves the counters into a file of the user's folder (live_folder.h), named by this process, and removes the
// files of processes that have ended. `stats_path`: where the counters go in the end. If the file cannot be
// made, nothing is shared. What other threads count at this moment may be lost. Never throws.
void publish(const std::string& stats_path) noexcept;

// The process ends by itself: removes a page that no `lms run` waits for.
void withdraw() noexcept;

}  // namespace lms::trace

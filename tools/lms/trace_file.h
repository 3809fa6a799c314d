// Reads a trace file (docs/reference/trace-format.md).
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shim/trace/events.h"

namespace lms::tool {

// What an event refers to lives as long as the trace. No text in it has what a terminal obeys.
struct Trace {
    std::string about;                 // the description at the file's beginning, JSON
    std::vector<trace::Event> events;  // in the order in which they were written
    bool ended = false;                // the program ended by itself
    std::uint64_t dropped = 0;         // events that were not written
    // Why not all of the file was read: it was cut, or damaged. Empty: it was.
    std::string stopped;

    std::deque<std::string> texts;
    std::deque<std::vector<std::string>> sites;
    std::pmr::monotonic_buffer_resource memory;
};

// Adds the events of the records in a block to a trace, block by block.
class TraceDecoder {
  public:
    explicit TraceDecoder(Trace& trace) : trace_(trace) {}

    // False: they are damaged; events before that are there. Takes no more memory than a multiple of `plain`.
    bool add(std::string_view plain);

  private:
    class Input;
    struct Numbered {
        std::unordered_map<std::uint64_t, std::string_view> strings;
        std::unordered_map<std::uint64_t, const std::vector<std::string>*> sites;
        std::unordered_map<std::uint64_t, std::uint64_t> streams;
    };

    bool record(Input& in);
    bool string(Input& in);
    bool site(Input& in);
    bool allocation(Input& in);
    bool launch(Input& in);
    bool move(Input& in);
    bool stall(Input& in);
    bool kernel_time(Input& in);
    bool link_speeds(Input& in);
    bool copy_time(Input& in);
    trace::Copied copied(Input& in);
    std::string_view text(Input& in);
    std::uint64_t stream(Input& in);
    std::uint64_t time(Input& in);
    std::uint32_t chunk(Input& in);
    std::span<const trace::Touched> touched(Input& in);
    template <typename Element>
    std::span<Element> room_for(std::size_t count);

    Trace& trace_;
    Numbered numbered_;
    std::unordered_map<std::uint64_t, std::uint32_t> allocation_of_;  // by device and chunk
    // A frame that many call sites have is kept by each of them: so much of these is kept for each byte that
    // is read, of a damaged trace no more.
    static constexpr std::uint64_t kSiteShare = 256;
    std::uint64_t site_room_ = 1 << 20;
    // As of the last record of the block.
    int device_ = 0;
    std::uint64_t time_ns_ = 0;
    std::uint32_t chunk_ = 0;
    // Of the launch that follows.
    bool writes_unseen_ = false;
    trace::Copied copied_;
};

// Of the bytes of a file. `problem` is one line where they are no trace, and empty else.
void read_trace(std::string_view bytes, Trace& trace, std::string& problem);
// Of a file, and of those that follow it (LMS_TRACE_SIZE), as far as they are there.
void read_trace_file(const std::string& path, Trace& trace, std::string& problem);

}  // namespace lms::tool

// The live pages of processes, as the commands pass them on.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "shim/trace/live_page.h"

namespace lms::tool {

using Pages = std::vector<std::unique_ptr<trace::LivePage>>;

// The policy that decides in a process, as it began or as `lms set` changed it.
std::string policy_of(const trace::LivePage& page);
// One of the buffers that moved most.
struct MovingBuffer {
    std::uint64_t number = 0;  // the program's first is 1
    std::uint64_t device = 0;
    std::uint64_t bytes = 0;
    std::uint64_t bytes_in = 0;  // since it was allocated, as the next
    std::uint64_t bytes_out = 0;
    bool freed = false;
    std::vector<std::string> frames =
        {};  // innermost first; empty: no trace was written when it was allocated

    std::uint64_t moved() const { return bytes_in + bytes_out; }
};
// Those of a page, whatever is in it; what moved most first.
std::vector<MovingBuffer> moving_buffers(const trace::LivePage& page);

// Who allocated each, by the innermost frame that not all of them have; empty where it is not known.
std::vector<std::string> places_of(const std::vector<MovingBuffer>& buffers);

// What may be filled of a GPU, in words; that it was less for a time is known by how much was lacking then.
std::string filled(std::uint64_t budget_bytes, std::uint64_t peak_allocated_bytes,
                   std::uint64_t most_beyond_bytes);

// What is told of one process: its number and program, what `lms set` changes, then all of its page.
nlohmann::ordered_json process_json(const trace::LivePage& page);
// As text; what of a program's name is not UTF-8 is replaced.
std::string text_of(const nlohmann::ordered_json& json);

}  // namespace lms::tool

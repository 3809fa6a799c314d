// Chrome's trace-event format: one event of ours as the JSON objects that a viewer reads.
// docs/reference/trace-format.md has the names.
#pragma once

#include <string>
#include <string_view>

#include "shim/trace/events.h"
#include "tools/lms/tracks.h"

namespace lms::tool {

// What stands before and behind all events.
inline constexpr std::string_view kChromeStart = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
inline constexpr std::string_view kChromeEnd = "\n]}\n";

// The JSON objects for `event`, separated by ",\n": the event, before it whatever names its row; empty for
// what the format has no place for. Text that is not UTF-8 is replaced where it is not. May throw
// std::bad_alloc.
std::string encode(const trace::Event& event, Tracks& tracks);

}  // namespace lms::tool

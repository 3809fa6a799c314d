// Functions and lines of the call sites in a trace.
#pragma once

#include "tools/lms/trace_file.h"

namespace lms::tool {

// Where the files that the program had loaded are still there, the same by their build ids, and binutils'
// addr2line is: frames that name no function name one from here on, and those of files with debug information
// their line. Others stay as they were recorded.
void resolve_call_sites(Trace& trace);

}  // namespace lms::tool

// Entry points newer than the shim's table: passed through, and named once.
#pragma once

#include <string_view>

namespace lms::entry {

// Says at `warn`, once a name and process, that the program was given a driver function that the shim does
// not know. Never throws; any thread.
void name_unknown(std::string_view symbol, int version) noexcept;

}  // namespace lms::entry

// What this program's exit status says. `lms run` otherwise ends as the program it runs.
#pragma once

namespace lms::tool {

inline constexpr int kNotWell = 1;  // doctor found something that keeps the shim from working
inline constexpr int kUsage = 2;
inline constexpr int kCannotSetUp = 125;  // a part of lmsshim is missing, or stdout is not writable
inline constexpr int kCannotExecute = 126;
inline constexpr int kNotFound = 127;

}  // namespace lms::tool

// One line to the user on stderr.
#pragma once

namespace simcuda::driver {

// Prefixes "simcuda: " and writes the line at once.
__attribute__((format(printf, 1, 2))) void message(const char* format, ...);

}  // namespace simcuda::driver

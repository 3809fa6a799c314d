// Where the other parts of lmsshim are, seen from this program.
#pragma once

#include <filesystem>

namespace lms::tool {

// Each is a path that exists, or empty. Built: beside the program; installed: in ../lib/lmsshim.
std::filesystem::path find_shim();           // liblmsshim.so
std::filesystem::path find_simulated_gpu();  // the folder of the simulated driver and runtime
std::filesystem::path find_demo();           // the demo's script

inline constexpr const char* kNoSimulatedGpu = "the simulated GPU is not there: `make` builds it";

}  // namespace lms::tool

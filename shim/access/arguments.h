// From a launch's arguments to what it reaches.
#pragma once

#include <cstddef>
#include <span>

#include "shim/code/ptx_bounds.h"
#include "shim/session/submit.h"

namespace lms::access {

// Adds the addresses among a launch's arguments (of managed memory and of what may be pointer tables), which
// come as pointers to each parameter (`parameters`, by the function's layout) or as one packed buffer
// (`extra`), and the owners of its variables. Without a layout the launch is opaque. `shape`: where it is
// known, and the kernel's code shows which parts of buffers it accesses, these alone. `later`: the host may
// write tables before it runs.
void add_arguments(session::WorkingSet& reach, CUfunction function, void** parameters, void** extra,
                   const code::LaunchShape* shape, bool later = false);

// The same of a launch that is about to be submitted, with what its kernel uses as addresses, and what comes
// of who launches it (access/exempt.h). To `reach`, which has nothing yet.
void add_launch(session::WorkingSet& reach, CUfunction function, void** parameters, void** extra,
                const code::LaunchShape& shape);

// A launch's parameters as one buffer, by the items of `extra`. From null: they name none.
std::span<const std::byte> packed_parameters(void** extra);

}  // namespace lms::access

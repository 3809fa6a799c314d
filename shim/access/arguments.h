// From a launch's arguments to what it reaches.
#pragma once

#include "shim/session/submit.h"

namespace lms::shim {

// Adds the addresses among a launch's arguments (of managed memory and of what may be pointer tables), which
// come as pointers to each parameter (`parameters`, by the function's layout) or as one packed buffer
// (`extra`), and the owners of its variables. Without a layout the launch is opaque. `later`: the host may
// write tables before it runs.
void add_arguments(WorkingSet& reach, CUfunction function, void** parameters, void** extra,
                   bool later = false);

}  // namespace lms::shim

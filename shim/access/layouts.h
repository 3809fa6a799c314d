// The parameter layouts of kernels, asked of the driver once each, or read from their code where the driver
// does not tell.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shim/access/exempt.h"
#include "shim/access/known_launches.h"
#include "shim/access/launch_bounds.h"
#include "shim/access/placed_access.h"
#include "shim/code/loaded_code.h"
#include "shim/device/cuda_api.h"

namespace lms::access {

struct Layout {
    std::string name;    // of the kernel; empty: the driver does not tell
    bool known = false;  // else the launch could hold anything
    std::vector<code::Parameter> parameters;
    std::size_t bytes() const;        // up to the end of the last of them
    std::vector<const void*> owners;  // the module and the library it comes from, as far as the driver tells
    code::Addresses addresses = code::Addresses::Complete;  // in LMS_SAFETY=opaque; elsewhere nobody asks
    code::ParameterWords written =
        code::ParameterWords::all();          // with LMS_RETAIN: which of their words it writes by
    std::vector<PlacedAccess> accesses;       // where the addresses are complete
    std::unique_ptr<LaunchBounds> bounds;     // there; null: the code does not show them
    std::unique_ptr<KnownLaunches> launches;  // null: it takes too many words for that
    std::unique_ptr<ExemptKernel> exempt = std::make_unique<ExemptKernel>();
};

// The layout of `function`, which may be a CUkernel cast to CUfunction. Thread-safe.
std::shared_ptr<const Layout> layout_of(CUfunction function);

// Drops what is known: handles of unloaded modules are used again for other kernels.
void forget_layouts();

}  // namespace lms::access

// The parameters of kernels as PTX declares them. Pure: text in, layouts out.
#pragma once

#include <string_view>

#include "shim/code/nv_info.h"

namespace lms::engine {

// Of the kernels of `text`, those whose parameters all are of known sizes.
CodeLayouts layouts_in_ptx(std::string_view text);

}  // namespace lms::engine

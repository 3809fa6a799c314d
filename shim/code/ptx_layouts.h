// The parameters of kernels as PTX declares them. Pure: text in, layouts out.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "shim/code/nv_info.h"
#include "shim/code/ptx_text.h"

namespace lms::code {

// Of the kernels of `text`, those whose parameters all are of known sizes.
CodeLayouts layouts_in_ptx(std::string_view text);

// Of one kernel; nothing where a parameter is of no known size.
std::optional<std::vector<Parameter>> layout_of(const std::vector<PtxParameter>& declared);

}  // namespace lms::code

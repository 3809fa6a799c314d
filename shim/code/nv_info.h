// The parameters of kernels as native code tells them: a cubin is an ELF file whose section
// ".nv.info.<kernel>" has an entry for each. Pure: bytes in, layouts out. NVIDIA documents none of it; the
// form is what nvcc 13.0 writes for sm_75 to sm_100 (tests/unit/nv_info_test.cpp holds it against that).
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shim/code/parameter.h"

namespace lms::code {

// By the kernel's name as in its code; parameters in their order.
using CodeLayouts = std::unordered_map<std::string, std::vector<Parameter>>;

// Of all kernels in `cubin`, whatever its bytes are; kernels whose entries are not whole are left out.
CodeLayouts layouts_in_cubin(std::string_view cubin);

}  // namespace lms::code

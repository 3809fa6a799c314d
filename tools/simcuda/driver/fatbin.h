// Finds the PTX in what a program hands to a load call.
//
// Four things arrive there: the wrapper nvcc leaves in a program (it points at a fat binary, and for
// relocatable code at several), a fat binary itself, a cubin (an ELF file of native code) and plain PTX text.
// A fat binary is a header and a run of entries, each PTX or native code for one architecture, raw or
// compressed with LZ4 or zstd.
#pragma once

#include "tools/simcuda/driver/cuda_api.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace simcuda::driver {

// Fills `modules` with the PTX text that serves a device of compute capability `arch` (75 is 7.5): one text,
// or several that are to be linked. The image is read in place and must be whole: sizes come from its own
// headers, and PTX text ends at its NUL.
//
// Fails with CUDA_ERROR_NO_BINARY_FOR_GPU where there is only native code, or PTX for newer devices alone,
// and with CUDA_ERROR_INVALID_IMAGE where it is none of the four.
CUresult find_ptx(const void* image, unsigned arch, std::vector<std::string>& modules);

// Of the fat binary that `bytes` begin with, header and all; 0 where they do not begin with a whole one.
std::size_t fat_binary_bytes(std::string_view bytes);

}  // namespace simcuda::driver

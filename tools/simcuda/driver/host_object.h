// Device code in files of the host's: objects that nvcc made for linking on the device, and archives of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"

namespace simcuda::driver {

// Adds to `modules` the PTX in an object (an ELF file) that serves a device of compute capability `arch`.
// Answers as find_ptx does; CUDA_ERROR_NO_BINARY_FOR_GPU where there is no device code at all.
CUresult find_ptx_in_object(std::string_view object, unsigned arch, std::vector<std::string>& modules);

struct ArchiveMember {
    std::string name;
    std::string bytes;
};

// The members of an archive (ar), in order, less its tables. Throws Failure with CUDA_ERROR_INVALID_IMAGE for
// what is none, or is cut short, or only names the files it is of (a thin one).
std::vector<ArchiveMember> members_of(std::string_view archive);

}  // namespace simcuda::driver

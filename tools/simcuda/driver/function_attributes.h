// What can be asked of and set for a function or kernel.
#pragma once

#include <cstddef>

#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/function.h"

namespace simcuda::driver {

// cuFuncGetAttribute, of a function of `program`, and cuFuncSetAttribute. Throw Failure with
// CUDA_ERROR_INVALID_VALUE.
int function_attribute(const Device& device, const Function& function, const ptx::Program& program,
                       CUfunction_attribute attribute);
void set_function_attribute(const Device& device, Function& function, CUfunction_attribute attribute,
                            int value);

// cuFuncGetParamInfo; `bytes` may be null. Throws Failure with CUDA_ERROR_INVALID_VALUE past the last
// parameter.
void parameter_info(const ptx::Kernel& kernel, std::size_t index, std::size_t* offset, std::size_t* bytes);

// The compute capability as one number: 75 is 7.5.
unsigned architecture(const Device& device);

// Whether kernels may begin before those they come behind have ended.
bool overlaps_kernels(const Device& device);

}  // namespace simcuda::driver

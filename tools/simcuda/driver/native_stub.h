// SIMCUDA_SKIP_NATIVE: kernels of native code alone, which do nothing.
#pragma once

#include <string>
#include <string_view>

namespace simcuda::driver {

// PTX with the kernels of `cubin`, their parameters, and no instruction. Its variables are left out. Empty:
// no kernel was found.
std::string stub_of(std::string_view cubin);

}  // namespace simcuda::driver

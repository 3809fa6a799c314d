// The options of a just-in-time compilation. Only where messages go has a meaning here; the rest are hints.
#pragma once

#include <cstddef>
#include <string_view>

#include "tools/simcuda/driver/cuda_api.h"

namespace simcuda::driver {

// Puts what is wrong with the PTX where the options say (CU_JIT_ERROR_LOG_BUFFER, its size in
// CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, which is given back as what was written). Both are written here and in
// write() and not later: programs read them before they destroy a linker, and free them in any order.
class JitLog {
  public:
    JitLog(unsigned count, const CUjit_option* options, void** values);

    void write(std::string_view errors);

  private:
    char* buffer_ = nullptr;
    std::size_t capacity_ = 0;
    void** size_ = nullptr;
};

}  // namespace simcuda::driver

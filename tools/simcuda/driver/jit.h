// The options of a just-in-time compilation. Only where messages go has a meaning here; the rest are hints.
#pragma once

#include <cstddef>
#include <string>

#include "tools/simcuda/driver/cuda_api.h"

namespace simcuda::driver {

// Collects what is wrong with the PTX, and when it ends puts that where the options say
// (CU_JIT_ERROR_LOG_BUFFER, its size in CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, which is given back as what was
// written).
class JitLog {
  public:
    JitLog(unsigned count, const CUjit_option* options, void** values);
    ~JitLog();
    JitLog(const JitLog&) = delete;
    JitLog& operator=(const JitLog&) = delete;

    std::string errors;

  private:
    char* buffer_ = nullptr;
    std::size_t capacity_ = 0;
    void** size_ = nullptr;
};

}  // namespace simcuda::driver

// Turns a failed CUDA call into an exception that knows what the program was doing.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace demo {

class CudaError : public std::runtime_error {
  public:
    CudaError(cudaError_t status, const std::string& doing)
        : std::runtime_error(doing + ": " + cudaGetErrorString(status)), status_(status) {}

    cudaError_t status() const { return status_; }

  private:
    cudaError_t status_;
};

inline void check(cudaError_t status, const char* doing) {
    if (status != cudaSuccess) throw CudaError(status, doing);
}

}  // namespace demo

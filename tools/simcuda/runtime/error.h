// Error codes: the driver's in terms of the runtime's, and the last one a thread saw.
#pragma once

#include "tools/simcuda/runtime/cuda_api.h"

namespace simcuda::runtime {

// The two enumerations share their values; what only the driver has becomes cudaErrorUnknown.
cudaError_t to_runtime_error(CUresult result);

// What a body answers: either library's code.
struct Status {
    cudaError_t error;
    Status(cudaError_t code) : error(code) {}
    Status(CUresult code) : error(to_runtime_error(code)) {}
};

// Leaves the body of a call from any depth.
struct Failure {
    cudaError_t error;
};

inline void require(Status status) {
    if (status.error != cudaSuccess) throw Failure{status.error};
}

inline void require(bool condition, cudaError_t otherwise) {
    if (!condition) throw Failure{otherwise};
}

// Remembers an error for cudaGetLastError of this thread, and returns it.
cudaError_t record(cudaError_t error);

// After cudaDeviceReset: errors that had made the context unusable are over, in every thread.
void forget_sticky_errors();

}  // namespace simcuda::runtime

// GPU memory with a name and an owner.
#pragma once

#include <cstddef>
#include <string>

#include "cuda_check.h"

namespace demo {

// A cudaMalloc that found no room.
class OutOfMemory : public CudaError {
  public:
    OutOfMemory(const std::string& name, std::size_t bytes)
        : CudaError(cudaErrorMemoryAllocation, "cudaMalloc of " + name), name_(name), bytes_(bytes) {}

    const std::string& name() const { return name_; }
    std::size_t bytes() const { return bytes_; }

  private:
    std::string name_;
    std::size_t bytes_;
};

template <typename T>
class DeviceBuffer {
  public:
    DeviceBuffer(const std::string& name, std::size_t count) : bytes_(count * sizeof(T)) {
        const cudaError_t status = cudaMalloc(reinterpret_cast<void**>(&data_), bytes_);
        if (status == cudaErrorMemoryAllocation) throw OutOfMemory(name, bytes_);
        if (status != cudaSuccess) throw CudaError(status, "cudaMalloc of " + name);
    }
    DeviceBuffer(DeviceBuffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
        other.data_ = nullptr;
    }
    DeviceBuffer& operator=(DeviceBuffer&&) = delete;
    // Errors of the work before show up here too; whoever synchronised has reported them.
    ~DeviceBuffer() { cudaFree(data_); }

    T* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    T* data_ = nullptr;
    std::size_t bytes_;
};

}  // namespace demo

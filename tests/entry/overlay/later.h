// Functions that no CUDA has, of a driver that is newer than the shim.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "shim/device/cuda_api.h"

namespace overlay {

// By value on the stack.
struct Large {
    std::array<std::int64_t, 8> words;
    bool operator==(const Large&) const = default;
};

// What cuFutureMany was called with.
struct Told {
    std::array<std::int64_t, 6> integers;
    std::array<double, 9> reals;
    Large large;
    bool operator==(const Told&) const = default;
};

}  // namespace overlay

extern "C" {
// Fills words of device memory in the stream's order.
CUresult cuFutureFill(CUdeviceptr at, std::uint32_t word, std::size_t words, CUstream stream);
CUresult cuFutureFill_ptsz(CUdeviceptr at, std::uint32_t word, std::size_t words, CUstream stream);
// Begins a capture.
CUresult cuFutureCapture(CUstream stream);
// A non-blocking stream.
CUresult cuFutureStream(CUstream* stream);
// Memory that the shim does not manage.
CUresult cuFutureAllocate(CUdeviceptr* at, std::size_t bytes);
// Says that it was called, and stays in the driver until it is opened.
CUresult cuFutureWait(std::atomic<bool>* entered, std::atomic<bool>* open);
// Gives a kernel of an executable graph other arguments.
CUresult cuFutureChangeKernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* kernel);
// Tells all of its arguments, and answers CUDA_ERROR_NOT_READY.
CUresult cuFutureMany(int a, double b, std::int64_t c, float d, int e, int f, int g, overlay::Large large,
                      int h, double i, double j, double k, double l, double m, double n, double o,
                      overlay::Told* told);
}

// One thread's work: fills, changes and verifies buffers of its own, again and again, with nothing named but
// the default stream; and a start for several such threads. Built with either meaning of the default stream.
#pragma once

#include <thread>

#include "check.h"

constexpr unsigned kThreads = 4;

__global__ void fill(unsigned* values, unsigned n, unsigned seed) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = noise(i, seed);
}

__global__ void increment(unsigned* values, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) ++values[i];
}

inline void work(unsigned thread, std::size_t bytes) {
    const std::size_t buffer = kMiB / 2;
    const unsigned n = buffer / sizeof(unsigned);
    const std::size_t count = std::max<std::size_t>(bytes / buffer, 1);
    std::vector<unsigned*> buffers(count);
    std::vector<unsigned> host(n);
    for (unsigned*& values : buffers) CHECK(cudaMalloc(&values, buffer));
    for (unsigned round = 0; round < 3; ++round) {
        for (std::size_t b = 0; b < count; ++b) {
            fill<<<blocks_for(n), 256>>>(buffers[b], n, thread * 1000 + static_cast<unsigned>(b) + round);
            increment<<<blocks_for(n), 256>>>(buffers[b], n);
            CHECK_LAUNCH();
        }
        for (std::size_t b = 0; b < count; ++b) {
            CHECK(cudaMemcpyAsync(host.data(), buffers[b], buffer, cudaMemcpyDeviceToHost));
            CHECK(cudaStreamSynchronize(nullptr));
            for (unsigned i = 0; i < n; ++i) {
                unsigned expected = noise(i, thread * 1000 + static_cast<unsigned>(b) + round) + 1;
                if (host[i] != expected) {
                    FAIL("thread %u, buffer %zu, element %u: %u, not %u", thread, b, i, host[i], expected);
                }
            }
        }
        // Give one buffer back and take another while the other threads work.
        CHECK(cudaFree(buffers[round % count]));
        CHECK(cudaMalloc(&buffers[round % count], buffer));
    }
    for (unsigned* values : buffers) CHECK(cudaFree(values));
}

inline int run_threads(std::size_t bytes) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back(work, t, bytes / kThreads);
    for (std::thread& thread : threads) thread.join();
    CHECK(cudaDeviceSynchronize());
    return succeed();
}

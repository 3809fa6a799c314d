// Host time of a launch that names four buffers. launches COUNT EXTRA_MIB: EXTRA_MIB more are allocated (and
// never used), which decides whether everything fits. Prints nanoseconds a launch, the median of nine rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/apps/check.h"
#include "tests/bench/somewhere.cuh"

__global__ void touch(float* a, float* b, const float* c, const float* d) {
    if (somewhere() != kNone) return;
    const auto at = static_cast<unsigned>(clock());
    a[at] = b[at] + c[at] + d[at];
}

int main(int argc, char** argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 2000;
    const int extra = argc > 2 ? std::atoi(argv[2]) : 0;
    float* buffers[4];
    for (float*& buffer : buffers) CHECK(cudaMalloc(&buffer, 1 << 20));
    for (int i = 0; i < extra; ++i) {
        void* more = nullptr;
        CHECK(cudaMalloc(&more, 1 << 20));
    }
    std::vector<double> rounds;
    for (int round = 0; round < 9; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < count; ++i) touch<<<1, 1>>>(buffers[0], buffers[1], buffers[2], buffers[3]);
        CHECK(cudaGetLastError());
        const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
        rounds.push_back(time.count() / count);
        CHECK(cudaDeviceSynchronize());
    }
    std::nth_element(rounds.begin(), rounds.begin() + 4, rounds.end());
    std::printf("%.1f\n", rounds[4]);
    return 0;
}

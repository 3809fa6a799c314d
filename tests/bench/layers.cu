// A training-like walk: forward over LAYERS layers of LAYER_MIB MiB and back, each layer read and written by
// a kernel that takes about as long as moving it. layers LAYERS LAYER_MIB PASSES. Prints milliseconds a pass,
// the median.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/apps/check.h"

__global__ void work(float* layer, int words, int rounds) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        float x = layer[i];
        for (int round = 0; round < rounds; ++round) x = x * 1.0001f + 0.5f;
        layer[i] = x;
    }
}

int main(int argc, char** argv) {
    const int layers = argc > 1 ? std::atoi(argv[1]) : 16;
    const int mib = argc > 2 ? std::atoi(argv[2]) : 1;
    const int passes = argc > 3 ? std::atoi(argv[3]) : 5;
    const int words = mib << 18;
    std::vector<float*> buffers(layers);
    for (float*& buffer : buffers) {
        CHECK(cudaMalloc(&buffer, static_cast<size_t>(words) * 4));
        CHECK(cudaMemset(buffer, 0, static_cast<size_t>(words) * 4));
    }
    std::vector<double> times;
    for (int pass = 0; pass < passes; ++pass) {
        CHECK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < layers; ++i) work<<<8, 128>>>(buffers[i], words, 8);
        for (int i = layers - 1; i >= 0; --i) work<<<8, 128>>>(buffers[i], words, 16);
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
        times.push_back(time.count());
    }
    std::nth_element(times.begin(), times.begin() + passes / 2, times.end());
    std::printf("%.2f\n", times[passes / 2]);
    return 0;
}

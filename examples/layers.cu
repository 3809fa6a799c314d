// Inference through layers whose weights do not fit, by a program that knows what comes next: while one layer
// runs the next is brought in, and the one before is put out. Without lmsshim the same program runs on a GPU
// that is large enough.
//
//   nvcc -cudart shared -I$HOME/.local/include -o layers layers.cu
//   lms run -- ./layers 32 64               (layers, MiB of weights each)
#include <lms/lms.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                             \
    do {                                                                        \
        const cudaError_t error = call;                                         \
        if (error != cudaSuccess) {                                             \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            std::exit(1);                                                       \
        }                                                                       \
    } while (0)

__global__ void fill(unsigned* weights, unsigned n, unsigned layer) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = i * 2654435761u + layer;
    x ^= x >> 15;
    if (i < n) weights[i] = x * 2246822519u;
}

// One number of the state from a column of the weights.
__global__ void forward(unsigned* state, const unsigned* weights, unsigned width, unsigned rows) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width) return;
    unsigned sum = state[i];
    for (unsigned row = 0; row < rows; ++row) sum = sum * 31 + weights[row * width + i];
    state[i] = sum;
}

int main(int count, char** words) {
    const int layers = count > 1 ? std::atoi(words[1]) : 32;
    const unsigned n = (count > 2 ? std::atoi(words[2]) : 64) * (1u << 20) / sizeof(unsigned);
    const unsigned width = 16384, rows = n / width;
    std::vector<unsigned*> weights(layers);
    for (int layer = 0; layer < layers; ++layer) {
        CHECK(cudaMalloc(&weights[layer], n * sizeof(unsigned)));
        fill<<<(n + 255) / 256, 256>>>(weights[layer], n, layer);
    }
    unsigned* state = nullptr;
    CHECK(cudaMalloc(&state, width * sizeof(unsigned)));
    CHECK(cudaMemset(state, 0, width * sizeof(unsigned)));
    // Each layer needs it. It may be too small to be managed, and then it never moves anyway.
    lms_pin(state, 0);
    // Where everything fits nothing is to be moved.
    lms_levels levels = {sizeof levels};
    const bool tight = lms_get_levels(0, &levels) == LMS_OK && levels.most_beyond_bytes > 0;

    for (int step = 0; step < 4; ++step) {
        lms_region_begin("step");
        for (int layer = 0; layer < layers; ++layer) {
            forward<<<(width + 255) / 256, 256>>>(state, weights[layer], width, rows);
            if (!tight) continue;
            lms_prefetch(weights[(layer + 1) % layers], 0);
            // Busy is a good answer: it goes when it is not.
            lms_evict(weights[(layer + layers - 1) % layers], 0);
        }
        CHECK(cudaDeviceSynchronize());
        lms_region_end();
    }
    std::vector<unsigned> result(width);
    CHECK(cudaMemcpy(result.data(), state, width * sizeof(unsigned), cudaMemcpyDeviceToHost));
    unsigned sum = 0;
    for (const unsigned each : result) sum = sum * 31 + each;
    std::printf("result %08x\n", sum);

    lms_counters counters = {sizeof counters};
    if (lms_get_counters(&counters) == LMS_OK)
        std::fprintf(stderr, "%llu MiB came in, %llu MiB went out\n",
                     (unsigned long long)(counters.bytes_in >> 20),
                     (unsigned long long)(counters.bytes_out >> 20));
}

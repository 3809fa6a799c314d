// Sums, extremes and histograms by shared memory, warp shuffles and atomic operations.
#include "check.h"

struct Totals {
    unsigned long long sum;
    unsigned least;
    unsigned most;
    unsigned histogram[64];
};

__global__ void reduce(const unsigned* values, unsigned n, Totals* totals) {
    __shared__ unsigned histogram[64];
    __shared__ unsigned long long sums[256 / 32];
    for (unsigned i = threadIdx.x; i < 64; i += blockDim.x) histogram[i] = 0;
    __syncthreads();
    unsigned long long sum = 0;
    unsigned least = ~0u, most = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned value = values[i];
        sum += value;
        least = min(least, value);
        most = max(most, value);
        atomicAdd(&histogram[value % 64], 1u);
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += sums[warp];
        atomicAdd(&totals->sum, sum);
    }
    atomicMin(&totals->least, least);
    atomicMax(&totals->most, most);
    if (threadIdx.x < 64) atomicAdd(&totals->histogram[threadIdx.x], histogram[threadIdx.x]);
}

int main(int argc, char** argv) {
    const std::size_t buffer = 2 * kMiB;
    const unsigned n = buffer / sizeof(unsigned);
    const std::size_t buffers = std::max<std::size_t>(bytes_to_use(argc, argv, 8) / buffer, 1);
    std::vector<unsigned*> values(buffers);
    std::vector<Totals> expected(buffers), found(buffers);
    std::vector<unsigned> host(n);
    Totals* totals;
    CHECK(cudaMalloc(&totals, buffers * sizeof(Totals)));
    for (std::size_t b = 0; b < buffers; ++b) {
        expected[b] = {0, ~0u, 0, {}};
        CHECK(cudaMemcpy(totals + b, &expected[b], sizeof(Totals), cudaMemcpyHostToDevice));
        for (unsigned i = 0; i < n; ++i) {
            host[i] = noise(b * n + i);
            expected[b].sum += host[i];
            expected[b].least = std::min(expected[b].least, host[i]);
            expected[b].most = std::max(expected[b].most, host[i]);
            ++expected[b].histogram[host[i] % 64];
        }
        CHECK(cudaMalloc(&values[b], buffer));
        CHECK(cudaMemcpy(values[b], host.data(), buffer, cudaMemcpyHostToDevice));
    }
    for (std::size_t b = 0; b < buffers; ++b) {
        reduce<<<24, 256>>>(values[b], n, totals + b);
        CHECK_LAUNCH();
    }
    CHECK(cudaMemcpy(found.data(), totals, buffers * sizeof(Totals), cudaMemcpyDeviceToHost));
    for (std::size_t b = 0; b < buffers; ++b) {
        CHECK_EQUAL(expected[b].sum, found[b].sum);
        CHECK_EQUAL(expected[b].least, found[b].least);
        CHECK_EQUAL(expected[b].most, found[b].most);
        for (unsigned i = 0; i < 64; ++i) CHECK_EQUAL(expected[b].histogram[i], found[b].histogram[i]);
        CHECK(cudaFree(values[b]));
    }
    CHECK(cudaFree(totals));
    return succeed();
}

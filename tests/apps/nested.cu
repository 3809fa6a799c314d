// Kernels that launch kernels: ranges are halved until they are small, then each value is transformed; a last
// launch counts what was done. Compiled for linking on the device (-rdc=true).
#include "check.h"

__global__ void transform(unsigned* values, unsigned n, unsigned* done) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    values[i] = values[i] * 3 + 1;
    if (i == 0) atomicAdd(done, n);
}

__global__ void publish(const unsigned* done, unsigned* total) {
    *total = *done;
}

__global__ void divide(unsigned* values, unsigned n, unsigned* done) {
    if (n <= 16384) {
        transform<<<(n + 255) / 256, 256>>>(values, n, done);
        return;
    }
    const unsigned half = threadIdx.x == 0 ? n / 2 : n - n / 2;
    const unsigned parts = half > 16384 ? 2 : 1;
    divide<<<1, parts>>>(values + (threadIdx.x == 0 ? 0 : n / 2), half, done);
}

__global__ void whole(unsigned* values, unsigned n, unsigned* done, unsigned* total) {
    publish<<<1, 1, 0, cudaStreamTailLaunch>>>(done, total);
    cudaStream_t stream;
    unsigned* size;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return;
    if (cudaMalloc(&size, sizeof *size) != cudaSuccess) return;
    *size = n;
    divide<<<1, 2, 0, stream>>>(values, *size, done);
    cudaFree(size);
    cudaStreamDestroy(stream);
    if (cudaGetLastError() != cudaSuccess) *done = 0x80000000;
}

int main(int argc, char** argv) {
    const std::size_t buffer = 2 * kMiB;
    const unsigned n = buffer / sizeof(unsigned);
    const std::size_t buffers = std::max<std::size_t>(bytes_to_use(argc, argv, 8) / buffer, 1);
    std::vector<unsigned*> values(buffers);
    std::vector<unsigned> host(n), counts(2 * buffers);
    unsigned* counters;
    CHECK(cudaMalloc(&counters, counts.size() * sizeof(unsigned)));
    CHECK(cudaMemset(counters, 0, counts.size() * sizeof(unsigned)));
    for (std::size_t b = 0; b < buffers; ++b) {
        for (unsigned i = 0; i < n; ++i) host[i] = noise(b * n + i);
        CHECK(cudaMalloc(&values[b], buffer));
        CHECK(cudaMemcpy(values[b], host.data(), buffer, cudaMemcpyHostToDevice));
    }
    for (std::size_t b = 0; b < buffers; ++b) {
        whole<<<1, 1>>>(values[b], n, counters + 2 * b, counters + 2 * b + 1);
        CHECK_LAUNCH();
    }
    CHECK(cudaMemcpy(counts.data(), counters, counts.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (std::size_t b = 0; b < buffers; ++b) {
        CHECK_EQUAL(n, counts[2 * b + 1]);
        CHECK(cudaMemcpy(host.data(), values[b], buffer, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < n; ++i) CHECK_EQUAL(noise(b * n + i) * 3 + 1, host[i]);
        CHECK(cudaFree(values[b]));
    }
    CHECK(cudaFree(counters));
    return succeed();
}

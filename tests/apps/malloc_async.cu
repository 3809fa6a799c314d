// Stream-ordered allocation: memory is taken and given back in the order of a stream, without synchronising.
#include "check.h"

__global__ void fill(unsigned* values, unsigned n, unsigned seed) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = noise(i, seed);
}

__global__ void accumulate(unsigned* sum, const unsigned* values, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] += values[i];
}

int main(int argc, char** argv) {
    const std::size_t buffer = kMiB;
    const unsigned n = buffer / sizeof(unsigned);
    const std::size_t live = std::max<std::size_t>(bytes_to_use(argc, argv, 8) / buffer, 3) - 1;

    cudaStream_t stream, other;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    cudaEvent_t ready;
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned long long threshold = ~0ull;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));

    unsigned* sum;
    CHECK(cudaMallocAsync(&sum, buffer, stream));
    CHECK(cudaMemsetAsync(sum, 0, buffer, stream));
    const unsigned rounds = 4;
    for (unsigned round = 0; round < rounds; ++round) {
        std::vector<unsigned*> values(live);
        for (std::size_t i = 0; i < live; ++i) {
            CHECK(cudaMallocAsync(&values[i], buffer, other));
            fill<<<blocks_for(n), 256, 0, other>>>(values[i], n, round * 100 + static_cast<unsigned>(i));
            CHECK_LAUNCH();
        }
        CHECK(cudaEventRecord(ready, other));
        CHECK(cudaStreamWaitEvent(stream, ready, 0));
        for (unsigned* v : values) {
            accumulate<<<blocks_for(n), 256, 0, stream>>>(sum, v, n);
            CHECK_LAUNCH();
            CHECK(cudaFreeAsync(v, stream));
        }
        CHECK(cudaEventRecord(ready, stream));
        CHECK(cudaStreamWaitEvent(other, ready, 0));
    }
    std::vector<unsigned> host(n);
    CHECK(cudaMemcpyAsync(host.data(), sum, buffer, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(sum, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < n; ++i) {
        unsigned expected = 0;
        for (unsigned round = 0; round < rounds; ++round) {
            for (std::size_t v = 0; v < live; ++v)
                expected += noise(i, round * 100 + static_cast<unsigned>(v));
        }
        if (host[i] != expected) FAIL("element %u: %u, not %u", i, host[i], expected);
    }
    unsigned long long used = 1;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK_EQUAL(0ull, used);
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaEventDestroy(ready));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
    return succeed();
}

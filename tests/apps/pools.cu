// Stream-ordered memory from the default pool and from one of the program's own, with what is asked of pools.
#include "batches.h"

__global__ void fill(unsigned* values, unsigned n, unsigned seed) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = noise(i, seed);
}

__global__ void add(unsigned* to, const unsigned* from, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += from[i];
}

unsigned long long attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
    unsigned long long value = 0;
    CHECK(cudaMemPoolGetAttribute(pool, which, &value));
    return value;
}

// Takes and gives back by turns, so that what was freed in one round serves the next.
void rounds(cudaMemPool_t pool, bool named, std::size_t bytes) {
    constexpr unsigned kBuffers = 16, kRounds = 3;
    const std::size_t size = bytes / kBuffers;
    const unsigned n = static_cast<unsigned>(size / sizeof(unsigned));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<unsigned> host(n), expected(n);
    for (unsigned round = 0; round < kRounds; ++round) {
        std::vector<unsigned*> buffers(kBuffers);
        for (unsigned b = 0; b < kBuffers; ++b) {
            CHECK(named ? cudaMallocFromPoolAsync(&buffers[b], size, pool, stream)
                        : cudaMallocAsync(&buffers[b], size, stream));
            fill<<<blocks_for(n), 256, 0, stream>>>(buffers[b], n, round * kBuffers + b);
            CHECK_LAUNCH();
        }
        if (attribute(pool, cudaMemPoolAttrUsedMemCurrent) < kBuffers * size)
            FAIL("a pool that says it is used less");
        for (unsigned b = 1; b < kBuffers; ++b) {
            add<<<blocks_for(n), 256, 0, stream>>>(buffers[0], buffers[b], n);
            CHECK_LAUNCH();
            CHECK(cudaFreeAsync(buffers[b], stream));
        }
        CHECK(cudaMemcpyAsync(host.data(), buffers[0], size, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFreeAsync(buffers[0], stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < n; ++i) {
            unsigned sum = 0;
            for (unsigned b = 0; b < kBuffers; ++b) sum += noise(i, round * kBuffers + b);
            if (host[i] != sum) FAIL("round %u, element %u: %u, not %u", round, i, host[i], sum);
        }
        CHECK_EQUAL(0ull, attribute(pool, cudaMemPoolAttrUsedMemCurrent));
        CHECK(cudaMemPoolTrimTo(pool, 0));
    }
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    cudaMemPool_t standard, current, own;
    CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    if (standard != current) FAIL("the device's pool is not the default one from the start");
    unsigned long long threshold = bytes;
    CHECK(cudaMemPoolSetAttribute(standard, cudaMemPoolAttrReleaseThreshold, &threshold));
    CHECK_EQUAL(threshold, attribute(standard, cudaMemPoolAttrReleaseThreshold));
    rounds(standard, false, bytes);
    rounds(standard, true, bytes);

    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolCreate(&own, &properties));
    rounds(own, true, bytes);
    // As the device's pool it serves those who name none.
    CHECK(cudaDeviceSetMemPool(0, own));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    if (own != current) FAIL("the device's pool is not the one that was set");
    rounds(own, false, bytes);
    CHECK(cudaDeviceSetMemPool(0, standard));
    CHECK(cudaMemPoolDestroy(own));
    return succeed();
}

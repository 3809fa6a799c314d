// c = a + b over many triples of buffers, all alive at once, worked through three times.
#include "check.h"

__global__ void add(const float* a, const float* b, float* c, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main(int argc, char** argv) {
    const std::size_t buffer = kMiB;
    const unsigned n = buffer / sizeof(float);
    const std::size_t triples = std::max<std::size_t>(bytes_to_use(argc, argv, 12) / (3 * buffer), 1);

    std::vector<float*> a(triples), b(triples), c(triples);
    std::vector<float> host(n);
    auto value = [](std::size_t t, unsigned i, unsigned seed) {
        return static_cast<float>(noise(t * n + i, seed) >> 8);
    };
    for (std::size_t t = 0; t < triples; ++t) {
        CHECK(cudaMalloc(&a[t], buffer));
        CHECK(cudaMalloc(&b[t], buffer));
        CHECK(cudaMalloc(&c[t], buffer));
        for (unsigned i = 0; i < n; ++i) host[i] = value(t, i, 1);
        CHECK(cudaMemcpy(a[t], host.data(), buffer, cudaMemcpyHostToDevice));
        for (unsigned i = 0; i < n; ++i) host[i] = value(t, i, 2);
        CHECK(cudaMemcpy(b[t], host.data(), buffer, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(c[t], 0xFF, buffer));
    }
    for (int round = 0; round < 3; ++round) {
        for (std::size_t t = 0; t < triples; ++t) {
            // The first round gives a + b, the next ones add a again.
            add<<<blocks_for(n), 256>>>(a[t], round == 0 ? b[t] : c[t], c[t], n);
            CHECK_LAUNCH();
        }
    }
    for (std::size_t t = 0; t < triples; ++t) {
        CHECK(cudaMemcpy(host.data(), c[t], buffer, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < n; ++i) {
            float x = value(t, i, 1);
            float expected = (x + value(t, i, 2)) + x + x;
            if (host[i] != expected) FAIL("triple %zu, element %u: %g, not %g", t, i, host[i], expected);
        }
    }
    for (std::size_t t = 0; t < triples; ++t) {
        CHECK(cudaFree(a[t]));
        CHECK(cudaFree(b[t]));
        CHECK(cudaFree(c[t]));
    }
    return succeed();
}

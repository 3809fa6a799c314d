// Kernels that give work to streams of their own: a fill and a copy, kernels that wait for them by an event,
// and one last launch that sees it all. Over buffers beyond the device's memory. Compiled for linking on the
// device
// (-rdc=true).
#include "batches.h"

__global__ void scale(unsigned* values, unsigned n, unsigned by) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        values[i] *= by;
}

__global__ void add(unsigned* to, const unsigned* from, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        to[i] += from[i];
}

__global__ void sum(const unsigned* values, unsigned n, unsigned long long* total) {
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(total, values[i]);
}

// to = 3 from + 0x01010101 in the first half, 3 from in the second.
__global__ void steps(unsigned* to, const unsigned* from, unsigned n, unsigned long long* total,
                      unsigned* errors) {
    cudaStream_t copies, fills;
    cudaEvent_t filled;
    unsigned wrong = 0;
    wrong += cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking) != cudaSuccess;
    wrong += cudaStreamCreateWithFlags(&fills, cudaStreamNonBlocking) != cudaSuccess;
    wrong += cudaEventCreateWithFlags(&filled, cudaEventDisableTiming) != cudaSuccess;
    unsigned* half;
    wrong += cudaMalloc(&half, n / 2 * sizeof(unsigned)) != cudaSuccess;
    wrong += cudaMemsetAsync(half, 1, n / 2 * sizeof(unsigned), fills) != cudaSuccess;
    wrong += cudaEventRecord(filled, fills) != cudaSuccess;
    wrong += cudaMemcpyAsync(to, from, n * sizeof(unsigned), cudaMemcpyDeviceToDevice, copies) != cudaSuccess;
    scale<<<4, 64, 0, copies>>>(to, n, 3);
    wrong += cudaStreamWaitEvent(copies, filled, 0) != cudaSuccess;
    add<<<4, 64, 0, copies>>>(to, half, n / 2);
    sum<<<1, 32, 0, cudaStreamTailLaunch>>>(to, n, total);
    wrong += cudaMemcpyAsync(to, from, 4, cudaMemcpyHostToDevice, copies) != cudaErrorInvalidMemcpyDirection;
    wrong += cudaGetLastError() != cudaErrorInvalidMemcpyDirection;
    wrong += cudaStreamCreateWithFlags(&copies, cudaStreamDefault) != cudaErrorInvalidValue;
    wrong += cudaGetLastError() != cudaErrorInvalidValue;
    wrong += cudaEventDestroy(filled) != cudaSuccess;
    wrong += cudaStreamDestroy(fills) != cudaSuccess;
    wrong += cudaGetLastError() != cudaSuccess;
    *errors = wrong;
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 8);
    constexpr unsigned kPairs = 8;
    const unsigned n = static_cast<unsigned>(bytes / kPairs / 2 / sizeof(unsigned)) / 2 * 2;
    std::list<Buffer<unsigned>> from, to;
    const Buffer<unsigned long long> totals(std::vector<unsigned long long>(kPairs, 0));
    const Buffer<unsigned> errors(std::vector<unsigned>(kPairs, 1));
    std::vector<std::vector<unsigned>> host(kPairs, std::vector<unsigned>(n));
    for (unsigned p = 0; p < kPairs; ++p) {
        for (unsigned i = 0; i < n; ++i) host[p][i] = noise(i, p);
        from.emplace_back(host[p]);
        to.emplace_back(n);
    }
    unsigned p = 0;
    for (auto f = from.begin(), t = to.begin(); f != from.end(); ++f, ++t, ++p) {
        steps<<<1, 1>>>(t->get(), f->get(), n, totals.get() + p, errors.get() + p);
        CHECK_LAUNCH();
    }
    std::vector<unsigned long long> expected_totals(kPairs);
    auto t = to.begin();
    for (p = 0; p < kPairs; ++p, ++t) {
        std::vector<unsigned> expected(n);
        for (unsigned i = 0; i < n; ++i) {
            expected[i] = host[p][i] * 3 + (i < n / 2 ? 0x01010101u : 0);
            expected_totals[p] += expected[i];
        }
        t->expect(expected, "steps");
    }
    totals.expect(expected_totals, "totals");
    errors.expect(std::vector<unsigned>(kPairs, 0), "errors");
    return succeed();
}

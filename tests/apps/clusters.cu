// Clusters: blocks that add up what each has counted in the shared memory of one of them, and that pass
// values round, over buffers beyond the device's memory. On devices without clusters their launch is refused.
#include <cooperative_groups.h>

#include "batches.h"

namespace cg = cooperative_groups;

constexpr unsigned kThreads = 128, kCluster = 4, kBins = 64;

// Of each cluster's part of the values a histogram; each value is then the next block's.
__global__ void count_and_pass(const unsigned* in, unsigned* out, unsigned* bins) {
#if __CUDA_ARCH__ >= 900
    __shared__ unsigned counted[kBins], values[kThreads];
    const cg::cluster_group cluster = cg::this_cluster();
    const unsigned i = blockIdx.x * kThreads + threadIdx.x, rank = cluster.block_rank();
    if (threadIdx.x < kBins) counted[threadIdx.x] = 0;
    values[threadIdx.x] = in[i];
    cluster.sync();
    atomicAdd(cluster.map_shared_rank(&counted[values[threadIdx.x] % kBins], 0), 1);
    out[i] = *cluster.map_shared_rank(&values[threadIdx.x], (rank + 1) % cluster.num_blocks());
    cluster.sync();
    if (rank == 0 && threadIdx.x < kBins)
        bins[blockIdx.x / kCluster * kBins + threadIdx.x] = counted[threadIdx.x];
#endif
}

cudaError_t launch(const unsigned* in, unsigned* out, unsigned* bins, unsigned n) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kCluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = n / kThreads;
    config.blockDim = kThreads;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, count_and_pass, in, out, bins);
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    constexpr unsigned kBuffers = 8, kUnit = kThreads * kCluster;
    const unsigned n = static_cast<unsigned>(bytes / kBuffers / 2 / sizeof(unsigned) / kUnit * kUnit);
    int clusters = 0;
    CHECK(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, 0));
    if (!clusters) {
        const Buffer<unsigned> one(kUnit);
        if (launch(one.get(), one.get(), one.get(), kUnit) == cudaSuccess)
            FAIL("clusters on a device without");
        return succeed();
    }
    std::list<Buffer<unsigned>> in, out, bins;
    std::vector<std::vector<unsigned>> host(kBuffers, std::vector<unsigned>(n));
    for (unsigned b = 0; b < kBuffers; ++b) {
        for (unsigned i = 0; i < n; ++i) host[b][i] = noise(i, b);
        in.emplace_back(host[b]);
        out.emplace_back(n);
        bins.emplace_back(n / kUnit * kBins);
    }
    for (auto i = in.begin(), o = out.begin(), c = bins.begin(); i != in.end(); ++i, ++o, ++c)
        CHECK(launch(i->get(), o->get(), c->get(), n));
    auto o = out.begin(), c = bins.begin();
    for (const std::vector<unsigned>& values : host) {
        std::vector<unsigned> passed(n), counted(n / kUnit * kBins);
        for (unsigned i = 0; i < n; ++i) {
            const unsigned first = i / kUnit * kUnit;
            passed[i] = values[first + (i - first + kThreads) % kUnit];
            ++counted[i / kUnit * kBins + values[i] % kBins];
        }
        o++->expect(passed, "passed");
        c++->expect(counted, "counted");
    }
    return succeed();
}

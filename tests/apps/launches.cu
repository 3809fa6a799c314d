// Launches by every call there is, with what fits at once, attributes and stream hints.
#include "check.h"

__global__ void scale(unsigned* values, unsigned n, unsigned by) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= by;
}

__global__ void reverse(unsigned* values) {
    extern __shared__ unsigned shared[];
    unsigned* own = values + blockIdx.x * blockDim.x;
    shared[threadIdx.x] = own[threadIdx.x];
    __syncthreads();
    own[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(128) bounded(unsigned* values) {
    values[threadIdx.x] = threadIdx.x;
}

void expect(const unsigned* device, unsigned n, unsigned by) {
    std::vector<unsigned> out(n);
    CHECK(cudaMemcpy(out.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < n; ++i)
        if (out[i] != noise(i) * by) FAIL("element %u: %u, not %u", i, out[i], noise(i) * by);
}

int main(int argc, char** argv) {
    const auto n = static_cast<unsigned>(bytes_to_use(argc, argv, 4) / sizeof(unsigned) / 2 / 256 * 256);
    std::vector<unsigned> in(n);
    for (unsigned i = 0; i < n; ++i) in[i] = noise(i);
    unsigned *values, *spare;
    CHECK(cudaMalloc(&values, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&spare, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(values, in.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(spare, 0, n * sizeof(unsigned)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    unsigned count = n, by = 3;
    void* arguments[] = {&values, &count, &by};
    CHECK(cudaLaunchKernel(reinterpret_cast<void*>(scale), dim3(blocks_for(n)), dim3(256), arguments, 0,
                           stream));
    by = 5;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks_for(n));
    config.blockDim = dim3(256);
    config.stream = stream;
    CHECK(cudaLaunchKernelExC(&config, reinterpret_cast<void*>(scale), arguments));
    CHECK(cudaLaunchKernelEx(&config, scale, values, n, 7u));
    CHECK(cudaStreamSynchronize(stream));
    expect(values, n, 3 * 5 * 7);

    // A cooperative launch fits at once or is refused.
    int blocks = 0, multiprocessors = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 256, 0));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    if (blocks < 1) FAIL("no block of 256 threads fits");
    cudaLaunchAttribute cooperative = {};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    config.attrs = &cooperative;
    config.numAttrs = 1;
    config.gridDim = dim3(static_cast<unsigned>(blocks * multiprocessors));
    by = 11;
    count = std::min(n, config.gridDim.x * 256);
    CHECK(cudaLaunchKernelExC(&config, reinterpret_cast<void*>(scale), arguments));
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(scale), config.gridDim, config.blockDim,
                                      arguments, 0, stream));
    config.gridDim.x += 1;
    CHECK_ERROR(cudaErrorCooperativeLaunchTooLarge,
                cudaLaunchKernelExC(&config, reinterpret_cast<void*>(scale), arguments));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<unsigned> out(n);
    CHECK(cudaMemcpy(out.data(), values, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < n; ++i) {
        const unsigned expected = noise(i) * 3 * 5 * 7 * (i < count ? 121 : 1);
        if (out[i] != expected) FAIL("cooperative launches, element %u: %u, not %u", i, out[i], expected);
    }

    // Shared memory by the launch, more of it than without asking, and what then fits.
    int small = 0, large = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&small, reverse, 256, 1024));
    CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 60 << 10));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&large, reverse, 256, 60 << 10,
                                                                 cudaOccupancyDisableCachingOverride));
    if (large != 1 || small <= large) FAIL("occupancy with shared memory: %d and %d", small, large);
    CHECK(cudaMemcpy(values, in.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    reverse<<<n / 256, 256, 60 << 10, stream>>>(values);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(out.data(), values, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < n; ++i)
        if (out[i] != in[i / 256 * 256 + 255 - i % 256]) FAIL("reversed, element %u", i);
    reverse<<<n / 256, 256, 70 << 10, stream>>>(values);
    if (cudaGetLastError() != cudaErrorInvalidValue) FAIL("more shared memory than there is");

    // No more threads than a kernel was made for.
    int least = 0, block = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &block, bounded));
    if (block > 128 || least < 1) FAIL("blocks of %d threads for a kernel of 128", block);
    bounded<<<1, 129>>>(spare);
    if (cudaGetLastError() != cudaErrorInvalidValue) FAIL("129 threads for a kernel of 128");

    // Hints about what stays in the cache change nothing that is computed.
    cudaStreamAttrValue window = {};
    window.accessPolicyWindow.base_ptr = values;
    window.accessPolicyWindow.num_bytes = n * sizeof(unsigned);
    window.accessPolicyWindow.hitRatio = 0.5f;
    window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    window.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &window));
    cudaStreamAttrValue held = {};
    CHECK(cudaStreamGetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &held));
    if (held.accessPolicyWindow.base_ptr != values ||
        held.accessPolicyWindow.num_bytes != n * sizeof(unsigned))
        FAIL("a stream's access policy window");
    CHECK(cudaMemcpy(values, in.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    scale<<<blocks_for(n), 256, 0, stream>>>(values, n, 2);
    CHECK(cudaCtxResetPersistingL2Cache());
    CHECK(cudaStreamSynchronize(stream));
    expect(values, n, 2);

    // A device is no peer of itself, nor of one that is not there.
    CHECK_ERROR(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(0, 0));
    CHECK_ERROR(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(1000, 0));
    CHECK(cudaFree(values));
    CHECK(cudaFree(spare));
    return succeed();
}

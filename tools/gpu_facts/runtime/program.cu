// The ways of a runtime program to launch, one after the other, for the logger to see.
#include <cuda_runtime.h>

#include <cstdio>

__device__ unsigned total;

__global__ void add(unsigned* out, unsigned value) {
    *out = total + value;
}

int main() {
    const auto failed = [](cudaError_t status, const char* what) {
        if (status != cudaSuccess) std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorName(status));
        return status != cudaSuccess;
    };
    unsigned* out = nullptr;
    if (failed(cudaMalloc(&out, sizeof *out), "cudaMalloc")) return 1;
    std::puts("program add<<<1, 1>>>");
    add<<<1, 1>>>(out, 1);
    if (failed(cudaGetLastError(), "<<<>>>")) return 1;
    std::puts("program add<<<1, 1, 0, cudaStreamPerThread>>>");
    add<<<1, 1, 0, cudaStreamPerThread>>>(out, 2);
    if (failed(cudaGetLastError(), "<<<>>> per thread")) return 1;
    std::puts("program cudaLaunchKernelEx");
    cudaLaunchConfig_t config{};
    config.gridDim = config.blockDim = dim3(1);
    if (failed(cudaLaunchKernelEx(&config, add, out, 3u), "cudaLaunchKernelEx")) return 1;
    std::puts("program cudaLaunchCooperativeKernel");
    unsigned value = 4;
    void* arguments[] = {&out, &value};
    if (failed(cudaLaunchCooperativeKernel(add, dim3(1), dim3(1), arguments, 0, nullptr), "cooperative"))
        return 1;
    if (failed(cudaDeviceSynchronize(), "cudaDeviceSynchronize")) return 1;
    return failed(cudaFree(out), "cudaFree") ? 1 : 0;
}

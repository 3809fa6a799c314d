// A CUDA runtime program, built with the static and with the shared runtime: prints what it answers on this
// machine.
#include <cuda_runtime.h>

#include <cstdio>

int main() {
    int devices = -1;
    const cudaError_t counted = cudaGetDeviceCount(&devices);
    void* memory = nullptr;
    const cudaError_t allocated = cudaMalloc(&memory, 100);
    int version = -1;
    const cudaError_t asked = cudaDriverGetVersion(&version);
    std::printf("count %d %d %s\nmalloc %d %d\nversion %d %d\n", counted, devices,
                cudaGetErrorString(counted), allocated, memory != nullptr, asked, version);
}

// What the runtime answers to mistakes, and what it remembers of them. Device memory is none of its business,
// so the amount given is not used.
#include <thread>

#include "check.h"

__global__ void touch(int* where) {
    *where = 1;
}
__global__ void bounded(int* where) {
    where[threadIdx.x] = static_cast<int>(threadIdx.x);
}

int main(int argc, char** argv) {
    bytes_to_use(argc, argv, 1);
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK_ERROR(cudaErrorInvalidDevice, cudaSetDevice(devices));
    CHECK_ERROR(cudaErrorInvalidDevice, cudaSetDevice(-1));

    // Arguments
    void* memory = nullptr;
    CHECK_ERROR(cudaErrorInvalidValue, cudaMalloc(nullptr, 16));
    CHECK(cudaMalloc(&memory, 0));
    if (memory != nullptr) FAIL("cudaMalloc of nothing gave %p", memory);
    CHECK(cudaFree(nullptr));
    CHECK_ERROR(cudaErrorMemoryAllocation, cudaMalloc(&memory, std::size_t{1} << 50));
    int on_stack = 0;
    CHECK_ERROR(cudaErrorInvalidValue, cudaFree(&on_stack));
    CHECK_ERROR(cudaErrorInvalidMemcpyDirection,
                cudaMemcpy(&on_stack, &on_stack, 4, static_cast<cudaMemcpyKind>(7)));
    CHECK_ERROR(cudaErrorInvalidResourceHandle,
                cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(0x1234)));
    CHECK_ERROR(cudaErrorInvalidResourceHandle, cudaEventDestroy(reinterpret_cast<cudaEvent_t>(&on_stack)));

    // Launches
    int* values = nullptr;
    CHECK(cudaMalloc(&values, 4096 * sizeof(int)));
    bounded<<<1, 2048>>>(values);
    CHECK_ERROR(cudaErrorInvalidConfiguration, cudaPeekAtLastError());
    bounded<<<0, 32>>>(values);
    CHECK_ERROR(cudaErrorInvalidConfiguration, cudaPeekAtLastError());
    bounded<<<1, 32, 10 << 20>>>(values);
    CHECK_ERROR(cudaErrorInvalidValue, cudaPeekAtLastError());
    CHECK_ERROR(cudaErrorInvalidDeviceFunction,
                cudaLaunchKernel(reinterpret_cast<void*>(&main), dim3(1), dim3(1), nullptr, 0, nullptr));
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, bounded));
    if (attributes.maxThreadsPerBlock < 32) FAIL("%d threads in a block", attributes.maxThreadsPerBlock);
    CHECK(cudaFuncSetAttribute(bounded, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000));
    CHECK(cudaFuncGetAttributes(&attributes, bounded));
    CHECK_EQUAL(50000, attributes.maxDynamicSharedSizeBytes);

    // The last error is the thread's own; success does not clear it, asking does.
    CHECK_EQUAL(static_cast<int>(cudaErrorInvalidDevice), static_cast<int>(cudaSetDevice(devices)));
    std::thread([] { CHECK(cudaGetLastError()); }).join();
    CHECK(cudaFree(nullptr));
    CHECK_EQUAL(static_cast<int>(cudaErrorInvalidDevice), static_cast<int>(cudaPeekAtLastError()));
    CHECK_EQUAL(static_cast<int>(cudaErrorInvalidDevice), static_cast<int>(cudaGetLastError()));
    CHECK(cudaGetLastError());

    // What a pointer is
    cudaPointerAttributes pointer;
    CHECK(cudaPointerGetAttributes(&pointer, values + 5));
    CHECK_EQUAL(static_cast<int>(cudaMemoryTypeDevice), static_cast<int>(pointer.type));
    CHECK_EQUAL(0, pointer.device);
    CHECK(cudaPointerGetAttributes(&pointer, &on_stack));
    CHECK_EQUAL(static_cast<int>(cudaMemoryTypeUnregistered), static_cast<int>(pointer.type));
    CHECK(cudaMallocHost(&memory, 100));
    CHECK(cudaPointerGetAttributes(&pointer, memory));
    CHECK_EQUAL(static_cast<int>(cudaMemoryTypeHost), static_cast<int>(pointer.type));
    CHECK(cudaFreeHost(memory));

    // Nothing to free; more than there are addresses; flags that exclude each other.
    CHECK(cudaFreeHost(nullptr));
    cudaPitchedPtr pitched;
    for (const cudaExtent extent :
         {cudaExtent{SIZE_MAX, 1, 1}, cudaExtent{1, SIZE_MAX, 1}, cudaExtent{1, 4, SIZE_MAX}})
        CHECK_ERROR(cudaErrorInvalidValue, cudaMalloc3D(&pitched, extent));
    CHECK_ERROR(cudaErrorInvalidValue, cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceScheduleYield));

    // A kernel that touches what is not there: every later call answers it, until the device is reset.
    touch<<<1, 1>>>(reinterpret_cast<int*>(0x10));
    CHECK_LAUNCH();
    CHECK_EQUAL(static_cast<int>(cudaErrorIllegalAddress), static_cast<int>(cudaDeviceSynchronize()));
    CHECK_EQUAL(static_cast<int>(cudaErrorIllegalAddress), static_cast<int>(cudaMalloc(&memory, 16)));
    CHECK_EQUAL(static_cast<int>(cudaErrorIllegalAddress), static_cast<int>(cudaGetLastError()));
    CHECK_EQUAL(static_cast<int>(cudaErrorIllegalAddress), static_cast<int>(cudaGetLastError()));
    cudaDeviceReset();
    CHECK(cudaGetLastError());
    CHECK(cudaMalloc(&values, 32 * sizeof(int)));
    bounded<<<1, 32>>>(values);
    CHECK_LAUNCH();
    int last = 0;
    CHECK(cudaMemcpy(&last, values + 31, sizeof(last), cudaMemcpyDeviceToHost));
    CHECK_EQUAL(31, last);
    CHECK(cudaFree(values));

    CHECK_EQUAL(0, std::strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress"));
    CHECK_EQUAL(0, std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
    CHECK_EQUAL(0,
                std::strcmp(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code"));
    return succeed();
}

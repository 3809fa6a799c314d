// Every device there is, from one thread and from one thread each: memory, streams, events, symbols and
// copies between devices; and the driver's calls beside the runtime's.
#include <cuda.h>

#include <thread>

#include "check.h"

#define CHECK_DRIVER(call)                                                                        \
    do {                                                                                          \
        CUresult check_result = (call);                                                           \
        if (check_result != CUDA_SUCCESS) FAIL("line %d: %s: %d", __LINE__, #call, check_result); \
    } while (0)

__device__ unsigned offset = 1;

__global__ void fill(unsigned* values, unsigned n, unsigned seed) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = noise(i, seed) + offset;
}

void verify(const unsigned* device_values, unsigned n, unsigned seed, unsigned added, const char* what) {
    std::vector<unsigned> host(n);
    CHECK(cudaMemcpy(host.data(), device_values, n * sizeof(unsigned), cudaMemcpyDefault));
    for (unsigned i = 0; i < n; ++i) {
        if (host[i] != noise(i, seed) + added)
            FAIL("%s, element %u: %u, not %u", what, i, host[i], noise(i, seed) + added);
    }
}

// Every device has several buffers, all alive at once.
constexpr unsigned kBuffers = 8;

unsigned seed_of(int device, unsigned buffer) {
    return static_cast<unsigned>(device) * kBuffers + buffer;
}

void one_device(int d, unsigned n, const std::vector<unsigned*>& buffers) {
    CHECK(cudaSetDevice(d));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (unsigned b = 0; b < kBuffers; ++b) {
        fill<<<blocks_for(n), 256, 0, stream>>>(buffers[b], n, seed_of(d, b));
        CHECK_LAUNCH();
    }
    CHECK(cudaStreamSynchronize(stream));
    int of_stream = -1;
    CHECK(cudaStreamGetDevice(stream, &of_stream));
    CHECK_EQUAL(d, of_stream);
    CHECK(cudaStreamDestroy(stream));
    for (unsigned b = 0; b < kBuffers; ++b) {
        cudaPointerAttributes attributes;
        CHECK(cudaPointerGetAttributes(&attributes, buffers[b]));
        CHECK_EQUAL(d, attributes.device);
        verify(buffers[b], n, seed_of(d, b), 10u + static_cast<unsigned>(d), "own device");
    }
}

// Access from the first device to the second, and a copy in a stream.
void peers(const std::vector<unsigned*>& first, const std::vector<unsigned*>& second, unsigned n) {
    int can = 0, supported = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    CHECK(cudaDeviceGetP2PAttribute(&supported, cudaDevP2PAttrAccessSupported, 0, 1));
    CHECK_EQUAL(can, supported);
    CHECK(cudaSetDevice(0));
    CHECK_ERROR(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(0, 0));
    if (can) {
        CHECK_ERROR(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(1));
        CHECK(cudaDeviceEnablePeerAccess(1, 0));
        CHECK_ERROR(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    fill<<<blocks_for(n), 256, 0, stream>>>(first[0], n, 77);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyPeerAsync(second[0], 1, first[0], 0, n * sizeof(unsigned), stream));
    CHECK(cudaStreamSynchronize(stream));
    verify(second[0], n, 77, 10, "copied in a stream");
    CHECK(cudaStreamDestroy(stream));
    if (can) CHECK(cudaDeviceDisablePeerAccess(1));
}

void each_device(int devices, unsigned n) {
    const std::size_t bytes = n * sizeof(unsigned);
    std::vector<std::vector<unsigned*>> buffers(devices, std::vector<unsigned*>(kBuffers));
    for (int d = 0; d < devices; ++d) {
        CHECK(cudaSetDevice(d));
        int current = -1;
        CHECK(cudaGetDevice(&current));
        CHECK_EQUAL(d, current);
        for (unsigned*& buffer : buffers[d]) CHECK(cudaMalloc(&buffer, bytes));
        // A module's variables are the device's own.
        unsigned own = 10u + static_cast<unsigned>(d);
        CHECK(cudaMemcpyToSymbol(offset, &own, sizeof(own)));
    }
    for (int d = 0; d < devices; ++d) one_device(d, n, buffers[d]);
    for (int d = 0; d + 1 < devices; ++d) {
        CHECK(cudaSetDevice(d + 1));
        for (unsigned b = 0; b < kBuffers; ++b)
            CHECK(cudaMemcpyPeer(buffers[d + 1][b], d + 1, buffers[d][b], d, bytes));
        CHECK(cudaDeviceSynchronize());
        for (unsigned b = 0; b < kBuffers; ++b)
            verify(buffers[d + 1][b], n, seed_of(0, b), 10, "copied from its neighbour");
    }
    if (devices > 1) peers(buffers[0], buffers[1], n);
    for (const auto& own : buffers)
        for (unsigned* buffer : own) CHECK(cudaFree(buffer));
}

void each_thread(int devices, unsigned n) {
    std::vector<std::thread> threads;
    for (int d = 0; d < devices; ++d) {
        threads.emplace_back([=] {
            int current = -1;
            CHECK(cudaGetDevice(&current));
            CHECK_EQUAL(0, current);  // whatever other threads said
            CHECK(cudaSetDevice(d));
            unsigned* values;
            CHECK(cudaMalloc(&values, n * sizeof(unsigned)));
            fill<<<blocks_for(n), 256>>>(values, n, 5);
            CHECK_LAUNCH();
            verify(values, n, 5, 10u + static_cast<unsigned>(d), "thread of its own");
            CHECK(cudaFree(values));
        });
    }
    for (std::thread& thread : threads) thread.join();
}

// The primary context is the one the runtime uses; another that is current is used in its place.
void beside_the_driver(unsigned n) {
    CHECK(cudaSetDevice(0));
    CUcontext current, primary, own;
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&primary, 0));
    if (current != primary) FAIL("the runtime's context is not the primary one");
    CUdeviceptr memory;
    CHECK_DRIVER(cuMemAlloc(&memory, n * sizeof(unsigned)));
    auto* values = reinterpret_cast<unsigned*>(memory);
    fill<<<blocks_for(n), 256>>>(values, n, 9);
    CHECK_LAUNCH();
    verify(values, n, 9, 10, "memory of the driver's");
    CHECK(cudaFree(values));

    CHECK_DRIVER(cuCtxCreate(&own, nullptr, 0, 0));
    CHECK(cudaMalloc(&values, n * sizeof(unsigned)));
    fill<<<blocks_for(n), 256>>>(values, n, 9);
    CHECK_LAUNCH();
    verify(values, n, 9, 1, "context of its own");  // with variables of its own
    CHECK_DRIVER(cuCtxDestroy(own));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(0));

    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(fill)));
    const char* name = nullptr;
    CHECK_DRIVER(cuFuncGetName(&name, function));
    if (std::strstr(name, "fill") == nullptr) FAIL("the function is called %s", name);
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &found));
    CHECK_EQUAL(static_cast<int>(cudaDriverEntryPointSuccess), static_cast<int>(found));
    CHECK(cudaGetDriverEntryPointByVersion("cuNoSuchCall", &entry, 12000, cudaEnableDefault, &found));
    CHECK_EQUAL(static_cast<int>(cudaDriverEntryPointSymbolNotFound), static_cast<int>(found));
}

// A reset ends what every thread had; all can go on afterwards.
void reset(unsigned n) {
    unsigned* values;
    CHECK(cudaMalloc(&values, n * sizeof(unsigned)));
    std::thread([&] {
        CHECK(cudaFree(nullptr));
        std::thread([] { CHECK(cudaDeviceReset()); }).join();
        CHECK(cudaMalloc(&values, n * sizeof(unsigned)));
        fill<<<blocks_for(n), 256>>>(values, n, 3);
        CHECK_LAUNCH();
        verify(values, n, 3, 1, "after a reset");
    }).join();
    verify(values, n, 3, 1, "after a reset, from the first thread");
    CHECK(cudaFree(values));
}

int main(int argc, char** argv) {
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    const unsigned n = static_cast<unsigned>(bytes_to_use(argc, argv, 1) / kBuffers / sizeof(unsigned));
    each_device(devices, n);
    each_thread(devices, n);
    beside_the_driver(n);
    reset(n);
    return succeed();
}

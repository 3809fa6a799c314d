// Host functions in stream order: each sees what was copied before it, and what it writes is copied after it.
#include <atomic>

#include "check.h"

__global__ void add_one(unsigned* values, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += 1;
}

struct Step {
    unsigned* host;
    unsigned n;
    unsigned expected_offset;
    unsigned buffer;
    std::atomic<unsigned>* bad;
    std::atomic<unsigned>* done;
};

// Checks what came from the device, and doubles it for the way back.
void check_and_double(void* data) {
    auto* step = static_cast<Step*>(data);
    for (unsigned i = 0; i < step->n; ++i) {
        if (step->host[i] != noise(i, step->buffer) + step->expected_offset) ++*step->bad;
        step->host[i] *= 2;
    }
    // CUDA calls are not permitted here.
    void* memory = nullptr;
    if (cudaMalloc(&memory, 256) != cudaErrorNotPermitted) ++*step->bad;
    ++*step->done;
}

void finished(cudaStream_t, cudaError_t status, void* data) {
    auto* done = static_cast<std::atomic<unsigned>*>(data);
    if (status == cudaSuccess) ++*done;
}

int main(int argc, char** argv) {
    const std::size_t bytes = kMiB;
    const unsigned n = bytes / sizeof(unsigned);
    const unsigned buffers =
        static_cast<unsigned>(std::max<std::size_t>(bytes_to_use(argc, argv, 6) / bytes, 1));
    std::atomic<unsigned> bad{0}, done{0};
    std::vector<unsigned*> device(buffers), host(buffers);
    std::vector<cudaStream_t> streams(buffers);
    std::vector<Step> steps(buffers);
    for (unsigned b = 0; b < buffers; ++b) {
        CHECK(cudaMalloc(&device[b], bytes));
        CHECK(cudaMallocHost(&host[b], bytes));
        CHECK(cudaStreamCreate(&streams[b]));
        for (unsigned i = 0; i < n; ++i) host[b][i] = noise(i, b);
        steps[b] = {host[b], n, 1, b, &bad, &done};
    }
    for (unsigned b = 0; b < buffers; ++b) {
        CHECK(cudaMemcpyAsync(device[b], host[b], bytes, cudaMemcpyHostToDevice, streams[b]));
        add_one<<<blocks_for(n), 256, 0, streams[b]>>>(device[b], n);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(host[b], device[b], bytes, cudaMemcpyDeviceToHost, streams[b]));
        CHECK(cudaLaunchHostFunc(streams[b], check_and_double, &steps[b]));
        CHECK(cudaMemcpyAsync(device[b], host[b], bytes, cudaMemcpyHostToDevice, streams[b]));
        add_one<<<blocks_for(n), 256, 0, streams[b]>>>(device[b], n);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(host[b], device[b], bytes, cudaMemcpyDeviceToHost, streams[b]));
        CHECK(cudaStreamAddCallback(streams[b], finished, &done, 0));
    }
    CHECK(cudaDeviceSynchronize());
    CHECK_EQUAL(0u, bad.load());
    CHECK_EQUAL(2 * buffers, done.load());
    for (unsigned b = 0; b < buffers; ++b) {
        for (unsigned i = 0; i < n; ++i) {
            unsigned expected = (noise(i, b) + 1) * 2 + 1;
            if (host[b][i] != expected) FAIL("buffer %u, element %u: %u, not %u", b, i, host[b][i], expected);
        }
        CHECK(cudaFree(device[b]));
        CHECK(cudaFreeHost(host[b]));
        CHECK(cudaStreamDestroy(streams[b]));
    }
    return succeed();
}

// Events: order between streams, time, and what is asked of them, with buffers that move in between.
#include "batches.h"

__global__ void step(unsigned* values, unsigned n, unsigned factor) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = values[i] * factor + 1;
}

__global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

void timing() {
    cudaEvent_t first, middle, last, untimed;
    for (cudaEvent_t* event : {&first, &middle, &last}) CHECK(cudaEventCreate(event));
    CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming | cudaEventBlockingSync));
    float whole = -1, one = -1, two = -1;
    // Never recorded: over, but of no time.
    CHECK(cudaEventQuery(first));
    CHECK(cudaEventSynchronize(first));
    CHECK_ERROR(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&whole, first, last));
    CHECK(cudaEventRecord(first));
    spin<<<1, 1>>>(20000);
    CHECK(cudaEventRecord(middle));
    spin<<<1, 1>>>(20000);
    CHECK(cudaEventRecord(last));
    CHECK(cudaEventRecord(untimed));
    CHECK(cudaEventSynchronize(untimed));
    CHECK(cudaEventQuery(last));
    CHECK(cudaEventElapsedTime(&whole, first, last));
    CHECK(cudaEventElapsedTime(&one, first, middle));
    CHECK(cudaEventElapsedTime(&two, middle, last));
    if (!(one > 0 && two > 0)) FAIL("%g and %g ms", one, two);
    const float difference = whole - (one + two);
    if (difference > 0.01f || difference < -0.01f) FAIL("%g ms in all, of %g and %g", whole, one, two);
    CHECK_ERROR(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&whole, first, untimed));
    for (cudaEvent_t event : {first, middle, last, untimed}) CHECK(cudaEventDestroy(event));
}

// A value is passed from buffer to buffer, each in the next of three streams.
void order(std::size_t bytes) {
    constexpr unsigned kBuffers = 16, kStreams = 3, kRounds = 3;
    const unsigned n = static_cast<unsigned>(bytes / kBuffers / sizeof(unsigned));
    std::vector<unsigned> host(n);
    for (unsigned i = 0; i < n; ++i) host[i] = noise(i);
    const Buffer<unsigned> first(host);
    // A copy from pageable memory may return before it has arrived, and the streams below do not wait for it.
    CHECK(cudaDeviceSynchronize());
    std::list<Buffer<unsigned>> buffers;
    for (unsigned b = 1; b < kBuffers; ++b) buffers.emplace_back(n);
    cudaStream_t streams[kStreams];
    cudaEvent_t done[kStreams];
    for (unsigned s = 0; s < kStreams; ++s) {
        CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&done[s], cudaEventDisableTiming));
    }
    unsigned* from = first.get();
    unsigned at = 0;
    for (unsigned round = 0; round < kRounds; ++round) {
        for (const Buffer<unsigned>& to : buffers) {
            const unsigned s = at % kStreams;
            if (at > 0) CHECK(cudaStreamWaitEvent(streams[s], done[(at - 1) % kStreams], 0));
            CHECK(
                cudaMemcpyAsync(to.get(), from, n * sizeof(unsigned), cudaMemcpyDeviceToDevice, streams[s]));
            step<<<blocks_for(n), 256, 0, streams[s]>>>(to.get(), n, 3 + 2 * s);
            CHECK_LAUNCH();
            CHECK(cudaEventRecord(done[s], streams[s]));
            from = to.get();
            ++at;
        }
    }
    CHECK(cudaEventSynchronize(done[(at - 1) % kStreams]));
    for (unsigned step = 0; step < at; ++step)
        for (unsigned& value : host) value = value * (3 + 2 * (step % kStreams)) + 1;
    buffers.back().expect(host, "passed on");
    for (unsigned s = 0; s < kStreams; ++s) {
        CHECK(cudaStreamSynchronize(streams[s]));
        CHECK(cudaStreamDestroy(streams[s]));
        CHECK(cudaEventDestroy(done[s]));
    }
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    timing();
    order(bytes);
    timing();
    return succeed();
}

// A pipeline over several streams: each piece is uploaded in one, worked on in a second, brought back in a
// third, with events between them. Buffers are reused, so a missing wait shows as a wrong value.
#include "check.h"

__global__ void transform(unsigned* values, unsigned n, unsigned key) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = values[i] * 2654435761u + key;
}

int main(int argc, char** argv) {
    const std::size_t buffer = kMiB;
    const unsigned n = buffer / sizeof(unsigned);
    const std::size_t slots = std::max<std::size_t>(bytes_to_use(argc, argv, 8) / buffer, 2);
    const std::size_t pieces = 3 * slots;

    cudaStream_t upload, work, download;
    CHECK(cudaStreamCreateWithFlags(&upload, cudaStreamNonBlocking));
    CHECK(cudaStreamCreate(&work));
    int low, high;
    CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
    CHECK(cudaStreamCreateWithPriority(&download, cudaStreamNonBlocking, high));

    struct Slot {
        unsigned* device;
        unsigned* in;
        unsigned* out;
        cudaEvent_t uploaded, worked, downloaded;
        std::size_t piece;
        bool used;
    };
    std::vector<Slot> ring(slots);
    for (Slot& slot : ring) {
        slot = {};
        CHECK(cudaMalloc(&slot.device, buffer));
        CHECK(cudaMallocHost(&slot.in, buffer));
        CHECK(cudaHostAlloc(&slot.out, buffer, cudaHostAllocPortable));
        CHECK(cudaEventCreateWithFlags(&slot.uploaded, cudaEventDisableTiming));
        CHECK(cudaEventCreate(&slot.worked));
        CHECK(cudaEventCreateWithFlags(&slot.downloaded, cudaEventBlockingSync));
    }
    auto verify = [&](Slot& slot) {
        CHECK(cudaEventSynchronize(slot.downloaded));
        for (unsigned i = 0; i < n; ++i) {
            unsigned expected = noise(slot.piece * n + i) * 2654435761u + static_cast<unsigned>(slot.piece);
            if (slot.out[i] != expected)
                FAIL("piece %zu, element %u: %u, not %u", slot.piece, i, slot.out[i], expected);
        }
    };
    for (std::size_t p = 0; p < pieces; ++p) {
        Slot& slot = ring[p % slots];
        if (slot.used) verify(slot);
        slot.piece = p;
        slot.used = true;
        for (unsigned i = 0; i < n; ++i) slot.in[i] = noise(p * n + i);
        CHECK(cudaMemcpyAsync(slot.device, slot.in, buffer, cudaMemcpyHostToDevice, upload));
        CHECK(cudaEventRecord(slot.uploaded, upload));
        CHECK(cudaStreamWaitEvent(work, slot.uploaded, 0));
        transform<<<blocks_for(n), 256, 0, work>>>(slot.device, n, static_cast<unsigned>(p));
        CHECK_LAUNCH();
        CHECK(cudaEventRecord(slot.worked, work));
        CHECK(cudaStreamWaitEvent(download, slot.worked, 0));
        CHECK(cudaMemcpyAsync(slot.out, slot.device, buffer, cudaMemcpyDeviceToHost, download));
        CHECK(cudaEventRecord(slot.downloaded, download));
        CHECK(cudaStreamWaitEvent(upload, slot.downloaded, 0));
    }
    for (Slot& slot : ring) {
        if (slot.used) verify(slot);
    }
    CHECK(cudaStreamSynchronize(work));
    CHECK(cudaStreamQuery(download));
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, ring[0].worked, ring[1].worked));
    if (ms < 0 && ring[1].piece > ring[0].piece) FAIL("events %g ms apart, in the wrong order", ms);
    for (Slot& slot : ring) {
        CHECK(cudaFree(slot.device));
        CHECK(cudaFreeHost(slot.in));
        CHECK(cudaFreeHost(slot.out));
        for (cudaEvent_t event : {slot.uploaded, slot.worked, slot.downloaded})
            CHECK(cudaEventDestroy(event));
    }
    for (cudaStream_t stream : {upload, work, download}) CHECK(cudaStreamDestroy(stream));
    return succeed();
}

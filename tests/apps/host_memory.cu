// Memory of the host that kernels reach (managed, mapped, registered) beside buffers that take more than the
// device has: kernels read one and write the other, both ways.
#include "batches.h"

__device__ __managed__ unsigned launches;

__global__ void combine(const unsigned* a, const unsigned* b, unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * 3 + b[i];
    if (i == 0) ++launches;
}

// Host memory of one kind, as the host and as the device see it.
struct HostMemory {
    const char* name;
    unsigned *host, *device;
};

constexpr unsigned kKinds = 6;

void take(std::vector<HostMemory>& kinds, std::vector<unsigned>& own, std::size_t bytes) {
    unsigned* memory;
    CHECK(cudaMallocManaged(&memory, bytes));
    kinds.push_back({"managed", memory, memory});
    CHECK(cudaMallocManaged(&memory, bytes, cudaMemAttachHost));
    CHECK(cudaStreamAttachMemAsync(nullptr, memory, 0, cudaMemAttachGlobal));
    CHECK(cudaDeviceSynchronize());
    kinds.push_back({"attached", memory, memory});
    CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    kinds.push_back({"mapped", memory, nullptr});
    CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocWriteCombined | cudaHostAllocMapped));
    kinds.push_back({"write-combined", memory, nullptr});
    CHECK(cudaMallocHost(&memory, bytes));
    kinds.push_back({"pinned", memory, memory});
    CHECK(cudaHostRegister(own.data(), bytes, cudaHostRegisterMapped));
    kinds.push_back({"registered", own.data(), nullptr});
    for (HostMemory& kind : kinds) {
        if (!kind.device) CHECK(cudaHostGetDevicePointer(&kind.device, kind.host, 0));
        cudaPointerAttributes attributes;
        CHECK(cudaPointerGetAttributes(&attributes, kind.host));
        if (attributes.devicePointer != kind.device || attributes.hostPointer != kind.host)
            FAIL("%s memory: attributes that name another address", kind.name);
    }
    CHECK_EQUAL(std::size_t{kKinds}, kinds.size());
}

void give_back(const std::vector<HostMemory>& kinds) {
    for (unsigned k = 0; k < kKinds; ++k) {
        if (k < 2)
            CHECK(cudaFree(kinds[k].host));
        else if (k + 1 < kKinds)
            CHECK(cudaFreeHost(kinds[k].host));
        else
            CHECK(cudaHostUnregister(kinds[k].host));
    }
}

int main(int argc, char** argv) {
    constexpr unsigned kBuffers = 16;
    const std::size_t bytes = bytes_to_use(argc, argv, 4) / kBuffers;
    const unsigned n = static_cast<unsigned>(bytes / sizeof(unsigned));
    std::vector<HostMemory> kinds;
    std::vector<unsigned> own(n);
    take(kinds, own, bytes);

    std::vector<std::vector<unsigned>> expected(kBuffers, std::vector<unsigned>(n));
    std::list<Buffer<unsigned>> buffers;
    for (unsigned b = 0; b < kBuffers; ++b) {
        for (unsigned i = 0; i < n; ++i) expected[b][i] = noise(i, b);
        buffers.emplace_back(expected[b]);
    }
    std::vector<unsigned> sum(n);
    for (const HostMemory& kind : kinds) {
        for (unsigned i = 0; i < n; ++i) kind.host[i] = i;
        cudaPointerAttributes attributes;
        CHECK(cudaPointerGetAttributes(&attributes, kind.host));
        if (attributes.type == cudaMemoryTypeManaged) {
            cudaMemLocation here = {};
            here.type = cudaMemLocationTypeDevice;
            CHECK(cudaMemAdvise(kind.host, bytes, cudaMemAdviseSetPreferredLocation, here));
            CHECK(cudaMemPrefetchAsync(kind.host, bytes, here, 0));
        }
        // Into the buffers from the host's memory, then all of them back into it.
        for (const Buffer<unsigned>& buffer : buffers)
            combine<<<blocks_for(n), 256>>>(buffer.get(), kind.device, buffer.get(), n);
        for (const Buffer<unsigned>& buffer : buffers)
            combine<<<blocks_for(n), 256>>>(kind.device, buffer.get(), kind.device, n);
        CHECK_LAUNCH();
        for (unsigned i = 0; i < n; ++i) {
            sum[i] = i;
            for (std::vector<unsigned>& values : expected) values[i] = values[i] * 3 + i;
            for (std::vector<unsigned>& values : expected) sum[i] = sum[i] * 3 + values[i];
        }
        CHECK(cudaDeviceSynchronize());
        for (unsigned i = 0; i < n; ++i)
            if (kind.host[i] != sum[i])
                FAIL("%s memory, element %u: %u, not %u", kind.name, i, kind.host[i], sum[i]);
        // Copies between the two.
        CHECK(cudaMemcpyAsync(kind.host, buffers.front().get(), bytes, cudaMemcpyDefault));
        CHECK(cudaMemcpyAsync(buffers.back().get(), kind.host, bytes, cudaMemcpyDefault));
        expected.back() = expected.front();
    }
    unsigned b = 0;
    for (const Buffer<unsigned>& buffer : buffers) buffer.expect(expected[b++], "buffer");
    CHECK_EQUAL(2 * kKinds * kBuffers, launches);
    give_back(kinds);
    return succeed();
}

// Host memory below 4 GiB, which is where a program that is not position independent has its variables and
// its heap: registered, then read and written by kernels beside buffers that take more than the device has.
#include <malloc.h>
#include <sys/mman.h>

#include "batches.h"

__global__ void combine(const unsigned* a, const unsigned* b, unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * 3 + b[i];
}

struct HostMemory {
    const char* name;
    unsigned* host;
};

constexpr std::size_t kBytes = 256 << 10;
constexpr unsigned kCount = kBytes / sizeof(unsigned);
unsigned variable[kCount];

std::vector<HostMemory> take() {
    // A heap that is one piece, at the end of the program.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    void* const mapped =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (mapped == MAP_FAILED) FAIL("nothing can be mapped below 4 GiB");
    // Whole pages and parts of pages.
    return {{"variable", variable},
            {"heap", static_cast<unsigned*>(std::malloc(kBytes))},
            {"mapped", static_cast<unsigned*>(mapped)}};
}

// The memory is filled by all of the buffers' values, then they by its.
void work(const HostMemory& memory, unsigned* device, std::list<Buffer<unsigned>>& buffers,
          std::vector<std::vector<unsigned>>& expected) {
    unsigned* const host = memory.host;
    std::vector<unsigned> sum(kCount);
    for (unsigned i = 0; i < kCount; ++i) host[i] = sum[i] = i;
    for (const Buffer<unsigned>& buffer : buffers)
        combine<<<blocks_for(kCount), 256>>>(device, buffer.get(), device, kCount);
    for (const Buffer<unsigned>& buffer : buffers)
        combine<<<blocks_for(kCount), 256>>>(buffer.get(), device, buffer.get(), kCount);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < kCount; ++i) {
        for (std::vector<unsigned>& values : expected) sum[i] = sum[i] * 3 + values[i];
        for (std::vector<unsigned>& values : expected) values[i] = values[i] * 3 + sum[i];
        if (host[i] != sum[i]) FAIL("%s, element %u: %u, not %u", memory.name, i, host[i], sum[i]);
    }
    // Copies between the two.
    CHECK(cudaMemcpyAsync(host, buffers.front().get(), kBytes, cudaMemcpyDefault));
    CHECK(cudaMemcpyAsync(buffers.back().get(), host, kBytes, cudaMemcpyDefault));
    expected.back() = expected.front();
    CHECK(cudaMemsetAsync(device, 0x5a, kBytes / 2));
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < kCount; ++i)
        CHECK_EQUAL(i < kCount / 2 ? 0x5a5a5a5au : expected.front()[i], host[i]);
}

int main(int argc, char** argv) {
    const std::vector<HostMemory> memories = take();
    const std::size_t number = bytes_to_use(argc, argv, 4) / kBytes;
    std::vector<std::vector<unsigned>> expected(number, std::vector<unsigned>(kCount));
    std::list<Buffer<unsigned>> buffers;
    for (unsigned b = 0; b < number; ++b) {
        for (unsigned i = 0; i < kCount; ++i) expected[b][i] = noise(i, b);
        buffers.emplace_back(expected[b]);
    }
    for (const HostMemory& memory : memories) {
        if (reinterpret_cast<std::size_t>(memory.host) >> 32 != 0)
            FAIL("%s: %p is not below 4 GiB", memory.name, static_cast<void*>(memory.host));
        CHECK(cudaHostRegister(memory.host, kBytes, cudaHostRegisterMapped));
        unsigned* device = nullptr;
        CHECK(cudaHostGetDevicePointer(&device, memory.host, 0));
        work(memory, device, buffers, expected);
        work(memory, memory.host, buffers, expected);  // registered memory has one address for both
        CHECK(cudaHostUnregister(memory.host));
    }
    unsigned b = 0;
    for (const Buffer<unsigned>& buffer : buffers) buffer.expect(expected[b++], "buffer");
    return succeed();
}

// What kernels print, in the order of the launches, and what a failed assertion does to a program.
#undef NDEBUG
#include <cassert>

#include "batches.h"

__global__ void describe(const unsigned* in, unsigned* out, unsigned n, const char* name) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = in[i] + 1;
    if (i == n - 1) {
        const int printed =
            printf("%s of %u: %08x %+d %c %s %.3f %lld%%\n", "batch", n, in[i], static_cast<int>(in[i]),
                   'a' + in[i] % 26, name, in[i] / 1024.0, static_cast<long long>(in[i]) << 20);
        assert(printed == 8);
    }
}

__global__ void insist(const unsigned* values, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) assert(i < 100 || values[i] == 0);
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    const Buffer<char> name(std::vector<char>{'n', 'a', 'm', 'e', '\0'});
    over_batches<unsigned, unsigned>(
        bytes, "printed", [](std::size_t i) { return noise(i); },
        [&](const unsigned* in, unsigned* out, unsigned n) {
            describe<<<blocks_for(n), 256>>>(in, out, n, name.get());
        },
        [](std::vector<unsigned> in) {
            for (unsigned& value : in) ++value;
            return in;
        });
    CHECK(cudaDeviceSynchronize());

    Buffer<unsigned> values(std::vector<unsigned>(4096, 1));
    insist<<<1, 100>>>(values.get(), 4096);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    insist<<<16, 256>>>(values.get(), 4096);
    CHECK_LAUNCH();
    // Nothing works after it.
    CHECK_ERROR(cudaErrorAssert, cudaDeviceSynchronize());
    void* more = nullptr;
    if (cudaMalloc(&more, kMiB) != cudaErrorAssert) FAIL("memory after a failed assertion");
    return succeed();
}

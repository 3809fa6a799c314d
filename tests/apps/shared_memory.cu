// Shared memory: tiles of it, amounts given at launch, more than the usual limit on request, and barriers
// that count.
#include "batches.h"

constexpr unsigned kTile = 32;

// Transposes squares of 32 by 32.
__global__ void transpose(const unsigned* in, unsigned* out) {
    __shared__ unsigned tile[kTile][kTile + 1];
    const unsigned first = blockIdx.x * kTile * kTile;
    for (unsigned row = threadIdx.y; row < kTile; row += blockDim.y)
        tile[row][threadIdx.x] = in[first + row * kTile + threadIdx.x];
    __syncthreads();
    for (unsigned row = threadIdx.y; row < kTile; row += blockDim.y)
        out[first + row * kTile + threadIdx.x] = tile[threadIdx.x][row];
}

// Reverses each of the blocks that share one array of `words`, split among two types.
__global__ void reverse(const unsigned* in, unsigned* out, unsigned words) {
    extern __shared__ double memory[];
    auto* values = reinterpret_cast<unsigned*>(memory);
    auto* doubles = memory + words / 2;
    const unsigned first = blockIdx.x * words;
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) values[i] = in[first + i];
    if (threadIdx.x < 32) doubles[threadIdx.x] = threadIdx.x + 0.5;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x)
        out[first + i] = values[words - 1 - i] + static_cast<unsigned>(2 * doubles[i % 32]);
}

__global__ void count(const unsigned* in, unsigned* out) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned odd = __syncthreads_count(in[i] & 1);
    const unsigned all = __syncthreads_and(in[i] % 1000 != 0) != 0;
    const unsigned any = __syncthreads_or(in[i] % 1000 == 1) != 0;
    out[i] = odd * 4 + all * 2 + any;
}

using Values = std::vector<unsigned>;

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    auto make = [](std::size_t i) { return noise(i); };
    over_batches<unsigned, unsigned>(
        bytes, "transposed", make,
        [](const unsigned* in, unsigned* out, unsigned n) {
            transpose<<<n / kTile / kTile, dim3(kTile, 8)>>>(in, out);
        },
        [](const Values& in) {
            Values out(in.size());
            for (std::size_t i = 0; i < in.size(); ++i) {
                const std::size_t row = i / kTile % kTile, column = i % kTile;
                out[i] = in[i - row * kTile - column + column * kTile + row];
            }
            return out;
        });
    // The most a block gets unasked is 48 KiB.
    const std::size_t beside = 32 * sizeof(double), usual = 48 << 10;
    for (const unsigned words : {1024u, 8192u, 15360u}) {
        const std::size_t shared = words * sizeof(unsigned) + beside;
        if (shared > usual) {
            reverse<<<1, 256, shared>>>(nullptr, nullptr, words);
            CHECK_ERROR(cudaErrorInvalidValue, cudaPeekAtLastError());
            CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shared)));
        }
        over_batches<unsigned, unsigned>(
            bytes, "reversed", make,
            [&](const unsigned* in, unsigned* out, unsigned n) {
                CHECK(cudaMemcpy(out, in, n * sizeof(unsigned), cudaMemcpyDeviceToDevice));
                if (n >= words) reverse<<<n / words, 256, shared>>>(in, out, words);
            },
            [&](const Values& in) {
                Values out = in;
                for (std::size_t i = 0; i < in.size() / words * words; ++i)
                    out[i] = in[i - i % words + words - 1 - i % words] + 2 * (i % words % 32) + 1;
                return out;
            });
    }
    over_batches<unsigned, unsigned>(
        bytes, "counted", make,
        [](const unsigned* in, unsigned* out, unsigned n) { count<<<n / 512, 512>>>(in, out); },
        [](const Values& in) {
            Values out(in.size());
            for (std::size_t first = 0; first < in.size(); first += 512) {
                unsigned odd = 0, all = 1, any = 0;
                for (std::size_t i = first; i < first + 512; ++i) {
                    odd += in[i] & 1;
                    all &= in[i] % 1000 != 0;
                    any |= in[i] % 1000 == 1;
                }
                std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(first), 512, odd * 4 + all * 2 + any);
            }
            return out;
        });
    return succeed();
}

// libcu++: the standard library in kernels (atomics, barriers, latches, semaphores, containers, algorithms of
// numbers), checked against the host's.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/semaphore>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/numeric>
#include <cuda/std/optional>
#include <cuda/std/span>
#include <cuda/std/tuple>
#include <cuda/std/utility>

#include "batches.h"

using Wide = unsigned long long;
constexpr unsigned kBlock = 128;

// Values and types: the same code on both sides.
__host__ __device__ Wide numbers(unsigned value) {
    cuda::std::array<unsigned, 4> parts = {value, value >> 8, value >> 16, value >> 24};
    const cuda::std::span<unsigned> middle(parts.data() + 1, 2);
    cuda::std::swap(middle[0], middle[1]);
    Wide result = 0;
    for (const unsigned part : parts) result = result * 31 + part;
    result += cuda::std::midpoint(middle[0], 1000u) * 3;
    cuda::std::optional<unsigned> odd;
    if (value & 1) odd = cuda::std::popcount(value);
    result = result * 31 + odd.value_or(77);
    result = result * 31 + static_cast<unsigned>(cuda::std::countl_zero(value)) + cuda::std::rotl(value, 5);
    const cuda::std::tuple<unsigned, Wide> pair = cuda::std::make_tuple(value, result);
    result += cuda::std::get<0>(pair) ^ cuda::std::get<1>(pair);
    // Whole numbers, so that every order of operations gives the same.
    const cuda::std::complex<double> z(value % 100, value % 7);
    const cuda::std::complex<double> square = z * z + cuda::std::conj(z);
    return result + static_cast<Wide>(static_cast<long long>(square.real() * 3 + square.imag()));
}

__global__ void values(const unsigned* in, Wide* out) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = numbers(in[i]);
}

// Rounds in which every thread adds its neighbour's value, kept apart by a barrier of the library's; the sum
// of the block is given to all by a latch.
__global__ void rounds(const unsigned* in, Wide* out) {
    using Barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ unsigned cells[2][kBlock];
    __shared__ cuda::std::aligned_storage_t<sizeof(Barrier), alignof(Barrier)> storage;
    __shared__ cuda::std::aligned_storage_t<sizeof(cuda::latch<cuda::thread_scope_block>),
                                            alignof(cuda::latch<cuda::thread_scope_block>)>
        latch_storage;
    __shared__ unsigned total;
    auto& barrier = reinterpret_cast<Barrier&>(storage);
    auto& latch = reinterpret_cast<cuda::latch<cuda::thread_scope_block>&>(latch_storage);
    const unsigned i = blockIdx.x * kBlock + threadIdx.x;
    if (threadIdx.x == 0) {
        new (&barrier) Barrier(kBlock);
        new (&latch) cuda::latch<cuda::thread_scope_block>(kBlock);
        total = 0;
    }
    cells[0][threadIdx.x] = in[i];
    __syncthreads();
    for (unsigned round = 0; round < 4; ++round) {
        cells[(round + 1) % 2][threadIdx.x] =
            cells[round % 2][threadIdx.x] + cells[round % 2][(threadIdx.x + 1) % kBlock];
        barrier.wait(barrier.arrive());
    }
    cuda::atomic_ref<unsigned, cuda::thread_scope_block>(total).fetch_add(cells[0][threadIdx.x] & 0xFF);
    latch.arrive_and_wait();
    out[i] = cells[0][threadIdx.x] * Wide{1} << 32 | total;
}

std::vector<Wide> expected_rounds(const std::vector<unsigned>& in) {
    std::vector<Wide> out(in.size());
    for (std::size_t first = 0; first < in.size(); first += kBlock) {
        std::vector<unsigned> cells(in.begin() + first, in.begin() + first + kBlock);
        for (unsigned round = 0; round < 4; ++round) {
            const std::vector<unsigned> before = cells;
            for (unsigned t = 0; t < kBlock; ++t) cells[t] = before[t] + before[(t + 1) % kBlock];
        }
        unsigned total = 0;
        for (const unsigned cell : cells) total += cell & 0xFF;
        for (unsigned t = 0; t < kBlock; ++t) out[first + t] = Wide{cells[t]} << 32 | total;
    }
    return out;
}

// What all blocks share: a counter, a largest value, and a place that two threads at a time may enter.
struct Shared {
    cuda::atomic<Wide, cuda::thread_scope_device> sum;
    cuda::atomic<unsigned, cuda::thread_scope_system> most;
    cuda::counting_semaphore<cuda::thread_scope_device, 2> places;
    cuda::atomic<unsigned, cuda::thread_scope_device> inside, crowd, visits;
};

__global__ void start(Shared* shared) {
    new (shared) Shared{{0}, {0}, cuda::counting_semaphore<cuda::thread_scope_device, 2>(2), {0}, {0}, {0}};
}

__global__ void meet(const unsigned* in, Wide* out, Shared* shared) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned value = in[i];
    shared->sum.fetch_add(value, cuda::memory_order_relaxed);
    unsigned seen = shared->most.load(cuda::memory_order_acquire);
    while (seen < value && !shared->most.compare_exchange_weak(seen, value)) {
    }
    if (threadIdx.x == 0) {
        shared->places.acquire();
        if (shared->inside.fetch_add(1) >= 2) shared->crowd.fetch_add(1);
        shared->visits.fetch_add(1);
        shared->inside.fetch_sub(1);
        shared->places.release();
    }
    out[i] = value;
}

__global__ void report(const Shared* shared, Wide* found) {
    found[0] = shared->sum.load();
    found[1] = shared->most.load();
    found[2] = shared->crowd.load();
    found[3] = shared->visits.load();
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    auto make = [](std::size_t i) { return noise(i); };
    over_batches<unsigned, Wide>(
        bytes, "values", make,
        [](const unsigned* in, Wide* out, unsigned n) { values<<<n / kBlock, kBlock>>>(in, out); },
        [](const std::vector<unsigned>& in) {
            std::vector<Wide> out;
            for (const unsigned value : in) out.push_back(numbers(value));
            return out;
        });
    over_batches<unsigned, Wide>(
        bytes, "rounds", make,
        [](const unsigned* in, Wide* out, unsigned n) { rounds<<<n / kBlock, kBlock>>>(in, out); },
        expected_rounds);

    const Buffer<Shared> shared(1);
    const Buffer<Wide> found(4);
    start<<<1, 1>>>(shared.get());
    Wide sum = 0, most = 0, visits = 0;
    over_batches<unsigned, Wide>(
        bytes, "shared", make,
        [&](const unsigned* in, Wide* out, unsigned n) {
            meet<<<n / kBlock, kBlock>>>(in, out, shared.get());
            visits += n / kBlock;
        },
        [&](const std::vector<unsigned>& in) {
            for (const unsigned value : in) {
                sum += value;
                most = std::max<Wide>(most, value);
            }
            return std::vector<Wide>(in.begin(), in.end());
        });
    report<<<1, 1>>>(shared.get(), found.get());
    CHECK_LAUNCH();
    found.expect({sum, most, 0, visits}, "shared by blocks");
    return succeed();
}

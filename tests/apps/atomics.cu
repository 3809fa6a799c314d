// Atomic operations of every kind and width on memory that many blocks share, in global and in shared memory:
// what they leave and what they return.
#include "batches.h"

using Wide = unsigned long long;

constexpr unsigned kSlots = 256, kThreads = 256;

// One set of operands' totals.
struct Totals {
    unsigned sum, difference, least, most, bits_and, bits_or, bits_xor, wrapped, unwrapped, swapped;
    int signed_least, signed_most;
    float real_sum;
    unsigned odd;
    Wide wide_sum, wide_least, wide_most, wide_or, exchanged, counted;
    double double_sum;
};

__host__ __device__ Totals start() {
    Totals totals = {};
    totals.least = totals.bits_and = ~0u;
    totals.unwrapped = 5;
    totals.signed_least = 0x7FFFFFFF;
    totals.signed_most = -0x7FFFFFFF;
    totals.wide_least = ~0ull;
    return totals;
}

__global__ void clear(Totals* totals) {
    totals[threadIdx.x] = start();
}

// Every slot belongs to the threads of one number in all blocks.
__global__ void accumulate(const unsigned* in, Totals* all) {
    __shared__ unsigned in_block;
    if (threadIdx.x == 0) in_block = 0;
    __syncthreads();
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned value = in[i];
    Totals& totals = all[threadIdx.x];
    atomicAdd(&totals.sum, value);
    atomicSub(&totals.difference, value);
    atomicMin(&totals.least, value);
    atomicMax(&totals.most, value);
    atomicAnd(&totals.bits_and, value | 0xFFFF);
    atomicOr(&totals.bits_or, value & 0xFF00FF);
    atomicXor(&totals.bits_xor, value);
    atomicInc(&totals.wrapped, 11);
    atomicDec(&totals.unwrapped, 13);
    atomicAdd(&totals.exchanged, Wide{atomicExch(&totals.swapped, value)});
    atomicMin(&totals.signed_least, static_cast<int>(value));
    atomicMax(&totals.signed_most, static_cast<int>(value));
    atomicAdd(&totals.real_sum, static_cast<float>(value % 64));
    atomicAdd(&totals.double_sum, value * 0.5);
    const Wide wide = value * 0x100000001ull;
    atomicAdd(&totals.wide_sum, wide);
    atomicMin(&totals.wide_least, wide);
    atomicMax(&totals.wide_most, wide);
    atomicOr(&totals.wide_or, wide & 0xF0F0F0F00F0F0F0Full);
    // An atomic operation of one's own.
    Wide seen = totals.counted, assumed;
    do {
        assumed = seen;
        seen = atomicCAS(&totals.counted, assumed, assumed + wide);
    } while (seen != assumed);
    atomicAdd(&in_block, value & 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&all[0].odd, in_block);
}

void verify(const std::vector<unsigned>& in, const Buffer<Totals>& buffer) {
    const std::vector<Totals> found = buffer.values(kSlots);
    for (unsigned slot = 0; slot < kSlots; ++slot) {
        Totals expected = start();
        unsigned count = 0;
        for (std::size_t i = slot; i < in.size(); i += kSlots, ++count) {
            const unsigned value = in[i];
            const Wide wide = value * 0x100000001ull;
            expected.sum += value;
            expected.difference -= value;
            expected.least = std::min(expected.least, value);
            expected.most = std::max(expected.most, value);
            expected.bits_and &= value | 0xFFFF;
            expected.bits_or |= value & 0xFF00FF;
            expected.bits_xor ^= value;
            expected.signed_least = std::min(expected.signed_least, static_cast<int>(value));
            expected.signed_most = std::max(expected.signed_most, static_cast<int>(value));
            expected.real_sum += static_cast<float>(value % 64);
            expected.double_sum += value * 0.5;
            expected.wide_sum += wide;
            expected.wide_least = std::min(expected.wide_least, wide);
            expected.wide_most = std::max(expected.wide_most, wide);
            expected.wide_or |= wide & 0xF0F0F0F00F0F0F0Full;
        }
        expected.wrapped = count % 12;
        expected.unwrapped = (5 + 14 - count % 14) % 14;
        if (slot == 0)
            for (const unsigned value : in) expected.odd += value & 1;
        const Totals& got = found[slot];
        CHECK_EQUAL(expected.sum, got.sum);
        CHECK_EQUAL(expected.difference, got.difference);
        CHECK_EQUAL(expected.least, got.least);
        CHECK_EQUAL(expected.most, got.most);
        CHECK_EQUAL(expected.bits_and, got.bits_and);
        CHECK_EQUAL(expected.bits_or, got.bits_or);
        CHECK_EQUAL(expected.bits_xor, got.bits_xor);
        CHECK_EQUAL(expected.wrapped, got.wrapped);
        CHECK_EQUAL(expected.unwrapped, got.unwrapped);
        CHECK_EQUAL(expected.signed_least, got.signed_least);
        CHECK_EQUAL(expected.signed_most, got.signed_most);
        CHECK_EQUAL(expected.real_sum, got.real_sum);
        CHECK_EQUAL(expected.double_sum, got.double_sum);
        CHECK_EQUAL(expected.odd, got.odd);
        CHECK_EQUAL(expected.wide_sum, got.counted);
        // What went in came out or is still there.
        CHECK_EQUAL(expected.sum, static_cast<unsigned>(got.exchanged + got.swapped));
        CHECK_EQUAL(expected.wide_sum, got.wide_sum);
        CHECK_EQUAL(expected.wide_least, got.wide_least);
        CHECK_EQUAL(expected.wide_most, got.wide_most);
        CHECK_EQUAL(expected.wide_or, got.wide_or);
    }
}

int main(int argc, char** argv) {
    const std::size_t n = bytes_to_use(argc, argv, 4) / 8 / sizeof(unsigned) / kThreads * kThreads;
    std::list<std::vector<unsigned>> inputs;
    std::list<Buffer<unsigned>> buffers;
    std::list<Buffer<Totals>> totals;
    for (unsigned b = 0; b < 8; ++b) {
        std::vector<unsigned> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = noise(i, b);
        buffers.emplace_back(values);
        totals.emplace_back(kSlots);
        inputs.push_back(std::move(values));
        clear<<<1, kSlots>>>(totals.back().get());
        CHECK_LAUNCH();
    }
    auto total = totals.begin();
    for (const Buffer<unsigned>& buffer : buffers) {
        accumulate<<<static_cast<unsigned>(n / kThreads), kThreads>>>(buffer.get(), total++->get());
        CHECK_LAUNCH();
    }
    total = totals.begin();
    for (const std::vector<unsigned>& values : inputs) verify(values, *total++);
    return succeed();
}

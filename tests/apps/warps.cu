// Operations among the threads of a warp, whole and in part: shuffles, votes and matches, each
// against a model of 32 lanes on the host.
#include "batches.h"

using Wide = unsigned long long;

__host__ __device__ Wide mixed(Wide so_far, Wide value) {
    return (so_far ^ value) * 0x9E3779B97F4A7C15ull;
}

constexpr unsigned kAll = 0xFFFFFFFF;

__global__ void shuffles(const unsigned* in, Wide* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned value = in[i];
    const Wide wide = value * 0x100000001ull;
    Wide result = mixed(0, __shfl_sync(kAll, value, value & 31));
    result = mixed(result, __shfl_sync(kAll, value, value & 31, 8));
    result = mixed(result, __shfl_up_sync(kAll, value, 3));
    result = mixed(result, __shfl_up_sync(kAll, value, 1, 4));
    result = mixed(result, __shfl_down_sync(kAll, value, 5));
    result = mixed(result, __shfl_down_sync(kAll, value, 2, 16));
    result = mixed(result, __shfl_xor_sync(kAll, value, 9));
    result = mixed(result, __shfl_xor_sync(kAll, wide, 21));
    out[i] = result;
}

std::vector<Wide> expected_shuffles(const std::vector<unsigned>& in) {
    std::vector<Wide> out(in.size());
    for (unsigned i = 0; i < in.size(); ++i) {
        const unsigned* warp = &in[i - i % 32];
        const unsigned lane = i % 32, value = in[i];
        // Within groups of `width` lanes; from beyond the group a lane gets its own value.
        auto from = [&](int target, unsigned width) {
            const bool inside = target >= 0 && static_cast<unsigned>(target) / width == lane / width;
            return warp[inside ? static_cast<unsigned>(target) : lane];
        };
        const int at = static_cast<int>(lane);
        Wide result = mixed(0, warp[value % 32]);
        result = mixed(result, warp[lane / 8 * 8 + value % 8]);
        result = mixed(result, from(at - 3, 32));
        result = mixed(result, from(at - 1, 4));
        result = mixed(result, from(at + 5, 32));
        result = mixed(result, from(at + 2, 16));
        result = mixed(result, warp[lane ^ 9]);
        result = mixed(result, warp[lane ^ 21] * 0x100000001ull);
        out[i] = result;
    }
    return out;
}

// The lanes of even and of odd values go different ways and work among themselves.
__global__ void votes(const unsigned* in, Wide* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned value = in[i];
    const bool odd = value & 1;
    const unsigned odds = __ballot_sync(kAll, odd);
    Wide result = mixed(0, odds);
    result = mixed(result, __all_sync(kAll, value % 64 != 0));
    result = mixed(result, __any_sync(kAll, value % 64 == 1));
    result = mixed(result, __match_any_sync(kAll, value % 7));
    int same = 0;
    result = mixed(result, __match_all_sync(kAll, value / 0x7F000000, &same));
    result = mixed(result, same);
    if (odd) {
        result = mixed(result, __ballot_sync(odds, value & 2));
        result = mixed(result, __shfl_sync(odds, value, __ffs(odds) - 1));
    } else {
        result = mixed(result, __match_any_sync(~odds, value % 3 * 0x100000001ull));
        result = mixed(result, (__activemask() & odds) == 0);
    }
    __syncwarp();
    out[i] = result;
}

std::vector<Wide> expected_votes(const std::vector<unsigned>& in) {
    std::vector<Wide> out(in.size());
    for (unsigned i = 0; i < in.size(); ++i) {
        const unsigned* warp = &in[i - i % 32];
        auto lanes = [&](auto predicate) {
            unsigned mask = 0;
            for (unsigned lane = 0; lane < 32; ++lane) mask |= (predicate(warp[lane]) ? 1u : 0u) << lane;
            return mask;
        };
        const unsigned value = in[i], odds = lanes([](unsigned v) { return v & 1; });
        Wide result = mixed(0, odds);
        result = mixed(result, lanes([](unsigned v) { return v % 64 != 0; }) == kAll);
        result = mixed(result, lanes([](unsigned v) { return v % 64 == 1; }) != 0);
        result = mixed(result, lanes([&](unsigned v) { return v % 7 == value % 7; }));
        const bool same = lanes([&](unsigned v) { return v / 0x7F000000 == value / 0x7F000000; }) == kAll;
        result = mixed(result, same ? kAll : 0);
        result = mixed(result, same);
        if (value & 1) {
            result = mixed(result, lanes([](unsigned v) { return v & 2; }) & odds);
            result = mixed(result, warp[__builtin_ctz(odds)]);
        } else {
            result = mixed(result, lanes([&](unsigned v) { return v % 3 == value % 3; }) & ~odds);
            result = mixed(result, true);
        }
        out[i] = result;
    }
    return out;
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    auto make = [](std::size_t i) { return noise(i) >> (noise(i / 32, 1) % 8 * 3); };
    over_batches<unsigned, Wide>(
        bytes, "shuffles", make,
        [](const unsigned* in, Wide* out, unsigned n) { shuffles<<<blocks_for(n), 256>>>(in, out, n); },
        expected_shuffles);
    over_batches<unsigned, Wide>(
        bytes, "votes", make,
        [](const unsigned* in, Wide* out, unsigned n) { votes<<<blocks_for(n), 256>>>(in, out, n); },
        expected_votes);
    return succeed();
}

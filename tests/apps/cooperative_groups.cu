// Cooperative groups: tiles of a warp and of a block, groups of the threads that came the same way or that
// agree on a value, their collectives and copies; and grids that wait for each other, over buffers beyond the
// device's memory.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "batches.h"

namespace cg = cooperative_groups;
using Wide = unsigned long long;

constexpr unsigned kBlock = 256;

__host__ __device__ Wide mixed(Wide so_far, Wide value) {
    return (so_far ^ value) * 0x9E3779B97F4A7C15ull;
}

__global__ void groups(const unsigned* in, Wide* out) {
    __shared__ unsigned copied[kBlock];
    const cg::thread_block block = cg::this_thread_block();
    cg::memcpy_async(block, copied, in + blockIdx.x * kBlock, sizeof(copied));
    cg::wait(block);
    const unsigned value = copied[block.thread_rank()];

    const auto warp = cg::tiled_partition<32>(block);
    const auto tile = cg::tiled_partition<8>(warp);
    Wide result = mixed(0, cg::reduce(warp, value, cg::plus<unsigned>()));
    result = mixed(result, cg::reduce(tile, value, cg::less<unsigned>()));
    result = mixed(result, cg::inclusive_scan(warp, value, cg::plus<unsigned>()));
    result = mixed(result, cg::exclusive_scan(tile, value));
    result = mixed(result, warp.shfl_xor(value, 7));
    result = mixed(result, tile.shfl(value, 3));
    result = mixed(result, tile.any(value % 8 == 0) * 2 + tile.all(value % 8 != 1));
    result = mixed(result, tile.meta_group_rank() * 100 + tile.thread_rank());
    // Groups of equal values, and of those that took a branch.
    const auto equal = cg::labeled_partition(warp, value % 3);
    result = mixed(result, equal.size() * 100 + equal.thread_rank());
    result = mixed(result, cg::reduce(equal, value, cg::plus<unsigned>()));
    if (value & 1) {
        const cg::coalesced_group odd = cg::coalesced_threads();
        // How many came at once is up to the device; that all of them take part is not.
        if (odd.thread_rank() == 0 && odd.size() > 32) result = 0;
        odd.sync();
    }
    const auto halves = cg::binary_partition(warp, value & 1);
    result = mixed(result, halves.size() * 100 + halves.thread_rank());
    cg::sync(block);
    out[block.group_index().x * kBlock + block.thread_rank()] = result;
}

std::vector<Wide> expected_groups(const std::vector<unsigned>& in) {
    std::vector<Wide> out(in.size());
    for (unsigned i = 0; i < in.size(); ++i) {
        const unsigned lane = i % 32, value = in[i];
        const unsigned* warp = &in[i - lane];
        const unsigned* tile = &in[i - i % 8];
        auto sum = [](const unsigned* values, unsigned n) {
            unsigned total = 0;
            for (unsigned k = 0; k < n; ++k) total += values[k];
            return total;
        };
        // Of those in the warp that have the same label: how many, how many before this one, and their sum.
        struct Group {
            unsigned size = 0, rank = 0, sum = 0;
        };
        auto group_of = [&](unsigned divisor) {
            Group group;
            for (unsigned k = 0; k < 32; ++k) {
                if (warp[k] % divisor != value % divisor) continue;
                ++group.size;
                group.rank += k < lane;
                group.sum += warp[k];
            }
            return group;
        };
        Wide result = mixed(0, sum(warp, 32));
        result = mixed(result, *std::min_element(tile, tile + 8));
        result = mixed(result, sum(warp, lane + 1));
        result = mixed(result, sum(tile, i % 8));
        result = mixed(result, warp[lane ^ 7]);
        result = mixed(result, tile[3]);
        const bool any = std::any_of(tile, tile + 8, [](unsigned v) { return v % 8 == 0; });
        const bool all = std::all_of(tile, tile + 8, [](unsigned v) { return v % 8 != 1; });
        result = mixed(result, any * 2 + all);
        result = mixed(result, lane / 8 * 100 + i % 8);
        const Group thirds = group_of(3), halves = group_of(2);
        result = mixed(result, thirds.size * 100 + thirds.rank);
        result = mixed(result, thirds.sum);
        result = mixed(result, halves.size * 100 + halves.rank);
        out[i] = result;
    }
    return out;
}

// Rounds of a stencil from one buffer to the other and back, with the whole grid waiting in between.
__global__ void smooth(unsigned* a, unsigned* b, unsigned n, unsigned rounds) {
    const cg::grid_group grid = cg::this_grid();
    for (unsigned round = 0; round < rounds; ++round) {
        for (Wide i = grid.thread_rank(); i < n; i += grid.num_threads())
            b[i] = a[i] * 2 + a[i + 1 < n ? i + 1 : 0] + a[i > 0 ? i - 1 : n - 1];
        grid.sync();
        unsigned* other = a;
        a = b;
        b = other;
    }
}

void grids(std::size_t bytes) {
    constexpr unsigned kPairs = 8, kRounds = 5;
    unsigned n = static_cast<unsigned>(bytes / kPairs / 2 / sizeof(unsigned));
    unsigned rounds = kRounds;
    std::list<Buffer<unsigned>> from, to;
    std::vector<std::vector<unsigned>> host(kPairs, std::vector<unsigned>(n));
    for (unsigned p = 0; p < kPairs; ++p) {
        for (unsigned i = 0; i < n; ++i) host[p][i] = noise(i, p);
        from.emplace_back(host[p]);
        to.emplace_back(n);
    }
    for (auto f = from.begin(), t = to.begin(); f != from.end(); ++f, ++t) {
        unsigned *a = f->get(), *b = t->get();
        void* arguments[] = {&a, &b, &n, &rounds};
        CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(smooth), dim3(8), dim3(128), arguments, 0,
                                          nullptr));
    }
    auto t = to.begin();
    for (std::vector<unsigned>& values : host) {
        std::vector<unsigned> next(n);
        for (unsigned round = 0; round < kRounds; ++round) {
            for (unsigned i = 0; i < n; ++i)
                next[i] = values[i] * 2 + values[i + 1 < n ? i + 1 : 0] + values[i > 0 ? i - 1 : n - 1];
            values.swap(next);
        }
        t++->expect(values, "grid");
    }
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    over_batches<unsigned, Wide>(
        bytes, "groups", [](std::size_t i) { return noise(i); },
        [](const unsigned* in, Wide* out, unsigned n) { groups<<<n / kBlock, kBlock>>>(in, out); },
        expected_groups);
    grids(bytes);
    return succeed();
}

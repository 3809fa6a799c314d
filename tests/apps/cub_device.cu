// CUB's device-wide, block-wide and warp-wide algorithms: histogram, select, run-length encoding, segmented
// reduction, sort and scan on 32- and 64-bit values, over batches that are all alive at once, each against
// the host's results.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_segmented_reduce.cuh>
#include <cub/device/device_select.cuh>
#include <cub/warp/warp_scan.cuh>
#include <numeric>

#include "batches.h"

using Wide = unsigned long long;

// Calls an algorithm twice, as CUB wants it: for the size of its scratch memory, and to work.
template <class Algorithm>
void run(const Algorithm& algorithm) {
    std::size_t bytes = 0;
    CHECK(algorithm(nullptr, bytes));
    Buffer<char> scratch(bytes);
    CHECK(algorithm(scratch.get(), bytes));
}

constexpr int kThreads = 128, kEach = 4, kTile = kThreads * kEach;

// Every block sorts a tile, scans it and adds it up; every warp scans its first values.
__global__ void tiles(const unsigned* in, unsigned* sorted, unsigned* sums, unsigned* totals,
                      unsigned* warp_sums) {
    using Sort = cub::BlockRadixSort<unsigned, kThreads, kEach>;
    using Scan = cub::BlockScan<unsigned, kThreads>;
    using Reduce = cub::BlockReduce<unsigned, kThreads>;
    using WarpScan = cub::WarpScan<unsigned>;
    __shared__ union {
        Sort::TempStorage sort;
        Scan::TempStorage scan;
        Reduce::TempStorage reduce;
        WarpScan::TempStorage warps[kThreads / 32];
    } storage;
    const std::size_t first = std::size_t{blockIdx.x} * kTile + threadIdx.x * kEach;
    unsigned values[kEach], sum[kEach];
    for (int i = 0; i < kEach; ++i) values[i] = in[first + i];
    Scan(storage.scan).ExclusiveSum(values, sum);
    for (int i = 0; i < kEach; ++i) sums[first + i] = sum[i];
    __syncthreads();
    const unsigned total = Reduce(storage.reduce).Sum(values);
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
    __syncthreads();
    unsigned in_warp;
    WarpScan(storage.warps[threadIdx.x / 32]).InclusiveSum(values[0], in_warp);
    warp_sums[blockIdx.x * kThreads + threadIdx.x] = in_warp;
    __syncthreads();
    Sort(storage.sort).Sort(values);
    for (int i = 0; i < kEach; ++i) sorted[first + i] = values[i];
}

class Batch {
  public:
    Batch(std::size_t tiles, unsigned seed)
        : n_(static_cast<int>(tiles * kTile)),
          tiles_(static_cast<unsigned>(tiles)),
          host_(make(n_, seed)),
          host_wide_(make_wide(n_, seed)),
          host_flags_(make_flags(n_, seed)),
          host_offsets_(make_offsets(n_, seed)),
          values_(host_),
          wide_(host_wide_),
          flags_(host_flags_),
          offsets_(host_offsets_),
          counts_(kBins),
          selected_(n_),
          run_values_(n_),
          run_lengths_(n_),
          counted_(2),
          sorted_(n_),
          sorted_values_(n_),
          sums_(n_),
          totals_(host_offsets_.size() - 1),
          tile_sorted_(n_),
          tile_sums_(n_),
          tile_totals_(tiles),
          warp_sums_(tiles * kThreads) {}

    void work() {
        run([&](void* scratch, std::size_t& bytes) {
            return cub::DeviceHistogram::HistogramEven(scratch, bytes, values_.get(), counts_.get(),
                                                       kBins + 1, 0u, kValues, n_);
        });
        run([&](void* scratch, std::size_t& bytes) {
            return cub::DeviceSelect::Flagged(scratch, bytes, values_.get(), flags_.get(), selected_.get(),
                                              counted_.get(), n_);
        });
        run([&](void* scratch, std::size_t& bytes) {
            return cub::DeviceRunLengthEncode::Encode(scratch, bytes, flags_.get(), run_values_.get(),
                                                      run_lengths_.get(), counted_.get() + 1, n_);
        });
        run([&](void* scratch, std::size_t& bytes) {
            return cub::DeviceRadixSort::SortPairsDescending(scratch, bytes, wide_.get(), sorted_.get(),
                                                             values_.get(), sorted_values_.get(), n_);
        });
        run([&](void* scratch, std::size_t& bytes) {
            return cub::DeviceScan::ExclusiveSum(scratch, bytes, wide_.get(), sums_.get(), n_);
        });
        run([&](void* scratch, std::size_t& bytes) {
            return cub::DeviceSegmentedReduce::Max(scratch, bytes, wide_.get(), totals_.get(),
                                                   static_cast<int>(host_offsets_.size() - 1), offsets_.get(),
                                                   offsets_.get() + 1);
        });
        tiles<<<tiles_, kThreads>>>(values_.get(), tile_sorted_.get(), tile_sums_.get(), tile_totals_.get(),
                                    warp_sums_.get());
        CHECK_LAUNCH();
    }

    void verify() const {
        verify_narrow();
        verify_wide();
        verify_tiles();
    }

  private:
    static constexpr int kBins = 64;
    static constexpr unsigned kValues = kBins * 1000;

    static std::vector<unsigned> make(int n, unsigned seed) {
        std::vector<unsigned> values(n);
        for (int i = 0; i < n; ++i) values[i] = noise(i, seed) % kValues;
        return values;
    }
    static std::vector<Wide> make_wide(int n, unsigned seed) {
        std::vector<Wide> values(n);
        for (int i = 0; i < n; ++i) values[i] = Wide{noise(i, seed + 1)} << 32 | noise(i, seed + 2);
        return values;
    }
    // Runs of 0 and 1.
    static std::vector<unsigned char> make_flags(int n, unsigned seed) {
        std::vector<unsigned char> flags(n);
        unsigned char flag = 0;
        for (int i = 0; i < n; ++i) flags[i] = flag ^= noise(i, seed + 3) % 5 == 0;
        return flags;
    }
    static std::vector<int> make_offsets(int n, unsigned seed) {
        std::vector<int> offsets = {0};
        while (offsets.back() < n)
            offsets.push_back(std::min<int>(n, offsets.back() + 1 + noise(offsets.size(), seed + 4) % 900));
        return offsets;
    }

    void verify_narrow() const {
        std::vector<int> counts(kBins);
        std::vector<unsigned> selected;
        std::vector<unsigned char> run_values;
        std::vector<int> run_lengths;
        for (int i = 0; i < n_; ++i) {
            ++counts[host_[i] / (kValues / kBins)];
            if (host_flags_[i]) selected.push_back(host_[i]);
            if (run_values.empty() || run_values.back() != host_flags_[i]) {
                run_values.push_back(host_flags_[i]);
                run_lengths.push_back(0);
            }
            ++run_lengths.back();
        }
        counts_.expect(counts, "histogram");
        counted_.expect({static_cast<int>(selected.size()), static_cast<int>(run_values.size())}, "counts");
        selected_.expect(selected, "select");
        run_values_.expect(run_values, "values of runs");
        run_lengths_.expect(run_lengths, "lengths of runs");
    }

    void verify_wide() const {
        std::vector<int> order(n_);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return host_wide_[a] > host_wide_[b]; });
        std::vector<Wide> sorted, sums(n_), largest;
        std::vector<unsigned> sorted_values;
        for (const int i : order) {
            sorted.push_back(host_wide_[i]);
            sorted_values.push_back(host_[i]);
        }
        for (int i = 1; i < n_; ++i) sums[i] = sums[i - 1] + host_wide_[i - 1];
        for (std::size_t s = 0; s + 1 < host_offsets_.size(); ++s)
            largest.push_back(*std::max_element(host_wide_.begin() + host_offsets_[s],
                                                host_wide_.begin() + host_offsets_[s + 1]));
        sorted_.expect(sorted, "keys of a sort");
        sorted_values_.expect(sorted_values, "values of a sort");
        sums_.expect(sums, "scan");
        totals_.expect(largest, "segmented reduction");
    }

    void verify_tiles() const {
        std::vector<unsigned> sorted = host_, sums, totals, warp_sums;
        unsigned sum = 0, in_warp = 0;
        for (int i = 0; i < n_; ++i) {
            if (i % kTile == 0) {
                sum = 0;
                std::sort(sorted.begin() + i, sorted.begin() + i + kTile);
            }
            sums.push_back(sum);
            sum += host_[i];
            if (i % kTile == kTile - 1) totals.push_back(sum);
            if (i % (32 * kEach) == 0) in_warp = 0;
            if (i % kEach == 0) warp_sums.push_back(in_warp += host_[i]);
        }
        tile_sorted_.expect(sorted, "sort in blocks");
        tile_sums_.expect(sums, "scan in blocks");
        tile_totals_.expect(totals, "reduction in blocks");
        warp_sums_.expect(warp_sums, "scan in warps");
    }

    int n_;
    unsigned tiles_;
    std::vector<unsigned> host_;
    std::vector<Wide> host_wide_;
    std::vector<unsigned char> host_flags_;
    std::vector<int> host_offsets_;
    Buffer<unsigned> values_;
    Buffer<Wide> wide_;
    Buffer<unsigned char> flags_;
    Buffer<int> offsets_, counts_;
    Buffer<unsigned> selected_;
    Buffer<unsigned char> run_values_;
    Buffer<int> run_lengths_, counted_;
    Buffer<Wide> sorted_;
    Buffer<unsigned> sorted_values_;
    Buffer<Wide> sums_, totals_;
    Buffer<unsigned> tile_sorted_, tile_sums_, tile_totals_, warp_sums_;
};

int main(int argc, char** argv) {
    // A value takes some 50 bytes in all of a batch's buffers.
    const std::size_t batches = 4, tiles = bytes_to_use(argc, argv, 4) / batches / 50 / kTile + 1;
    std::list<Batch> all;
    for (unsigned b = 0; b < batches; ++b) all.emplace_back(tiles, 10 * b);
    for (Batch& batch : all) batch.work();
    for (const Batch& batch : all) batch.verify();
    return succeed();
}

// Thrust's algorithms on 32- and 64-bit values: sort, scan, reduce, unique, partition, removal and the forms
// by key, on vectors that are all alive at once, each against the standard library's.
#include <thrust/device_vector.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <algorithm>
#include <list>
#include <numeric>

#include "check.h"

template <class T>
struct IsOdd {
    __host__ __device__ bool operator()(T value) const { return value & 1; }
};

template <class T>
void expect(const std::vector<T>& expected, const thrust::device_vector<T>& found, const char* what) {
    CHECK_EQUAL(expected.size(), found.size());
    std::vector<T> host(found.size());
    thrust::copy(found.begin(), found.end(), host.begin());
    for (std::size_t i = 0; i < host.size(); ++i) {
        if (host[i] != expected[i]) {
            FAIL("%s of %zu-byte values, element %zu: %llu, not %llu", what, sizeof(T), i,
                 static_cast<unsigned long long>(host[i]), static_cast<unsigned long long>(expected[i]));
        }
    }
}

// Values of all bits, and keys of which many are equal.
template <class T>
struct Input {
    Input(std::size_t n, unsigned seed) : values(n), keys(n) {
        for (std::size_t i = 0; i < n; ++i) {
            values[i] = static_cast<T>(noise(i, seed) * 0x100000001ull ^ noise(i, seed + 1));
            keys[i] = noise(i, seed + 2) % 50 * (~T{0} / 50);
        }
    }
    std::vector<T> values, keys;
};

template <class T>
class Work {
  public:
    Work(std::size_t n, unsigned seed) : host_(n, seed), values_(host_.values), keys_(host_.keys) {
        sorted_ = values_;
        thrust::sort(sorted_.begin(), sorted_.end());

        by_key_ = values_;
        sorted_keys_ = keys_;
        thrust::stable_sort_by_key(sorted_keys_.begin(), sorted_keys_.end(), by_key_.begin());

        sums_.resize(n);
        thrust::inclusive_scan(values_.begin(), values_.end(), sums_.begin());
        total_ = thrust::reduce(values_.begin(), values_.end());

        run_keys_.resize(n);
        run_sums_.resize(n);
        const auto runs = thrust::reduce_by_key(sorted_keys_.begin(), sorted_keys_.end(), by_key_.begin(),
                                                run_keys_.begin(), run_sums_.begin());
        run_keys_.resize(runs.first - run_keys_.begin());
        run_sums_.resize(runs.second - run_sums_.begin());
        sums_by_key_.resize(n);
        thrust::inclusive_scan_by_key(sorted_keys_.begin(), sorted_keys_.end(), by_key_.begin(),
                                      sums_by_key_.begin());

        distinct_ = sorted_keys_;
        distinct_.erase(thrust::unique(distinct_.begin(), distinct_.end()), distinct_.end());

        parted_ = values_;
        odd_ = thrust::stable_partition(parted_.begin(), parted_.end(), IsOdd<T>()) - parted_.begin();

        evens_.resize(n);
        evens_.erase(thrust::remove_copy_if(values_.begin(), values_.end(), evens_.begin(), IsOdd<T>()),
                     evens_.end());
    }

    void verify() const {
        verify_whole();
        verify_by_key();
    }

  private:
    void verify_whole() const {
        std::vector<T> expected = host_.values;
        expect(expected, values_, "the input");
        std::sort(expected.begin(), expected.end());
        expect(expected, sorted_, "sort");
        std::partial_sum(host_.values.begin(), host_.values.end(), expected.begin());
        expect(expected, sums_, "scan");
        if (total_ != expected.back()) FAIL("the sum of %zu-byte values", sizeof(T));

        expected = host_.values;
        const auto middle = std::stable_partition(expected.begin(), expected.end(), IsOdd<T>());
        CHECK_EQUAL(middle - expected.begin(), odd_);
        expect(expected, parted_, "partition");
        expect(std::vector<T>(middle, expected.end()), evens_, "removal");
    }

    void verify_by_key() const {
        const std::size_t n = host_.values.size();
        std::vector<std::size_t> order(n);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return host_.keys[a] < host_.keys[b]; });
        std::vector<T> keys, values, run_keys, run_sums, sums;
        for (const std::size_t i : order) {
            keys.push_back(host_.keys[i]);
            values.push_back(host_.values[i]);
            if (run_keys.empty() || run_keys.back() != keys.back()) {
                run_keys.push_back(keys.back());
                run_sums.push_back(0);
            }
            run_sums.back() += values.back();
            sums.push_back(run_sums.back());
        }
        expect(keys, sorted_keys_, "the keys of a sort");
        expect(values, by_key_, "sort by key");
        expect(run_keys, run_keys_, "the keys of a reduction");
        expect(run_sums, run_sums_, "reduction by key");
        expect(sums, sums_by_key_, "scan by key");
        expect(run_keys, distinct_, "unique");
    }

    using Vector = thrust::device_vector<T>;
    Input<T> host_;
    Vector values_, keys_;
    Vector sorted_, by_key_, sorted_keys_, sums_, run_keys_, run_sums_, sums_by_key_, distinct_, parted_,
        evens_;
    T total_;
    std::ptrdiff_t odd_;
};

int main(int argc, char** argv) {
    // Sizes that no tile divides. Twelve vectors each, all kept.
    const std::size_t bytes = bytes_to_use(argc, argv, 4) / 12 / 4;
    std::list<Work<unsigned>> narrow;
    std::list<Work<unsigned long long>> wide;
    for (unsigned round = 0; round < 2; ++round) {
        narrow.emplace_back(bytes / 4 - 3, round);
        wide.emplace_back(bytes / 8 - 5, round + 10);
    }
    for (const auto& work : narrow) work.verify();
    for (const auto& work : wide) work.verify();
    return succeed();
}

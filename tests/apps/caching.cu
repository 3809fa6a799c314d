// A caching allocator like those of frameworks: what is freed stays cached by its size, and is given back
// only when an allocation fails, which is then tried once more. Each phase of the program uses a size of its
// own, so that what the phases before it cached is dead; three eighths of the memory it works through are
// alive at a time.
#include <map>

#include "check.h"

__global__ void fill(unsigned* values, unsigned n, unsigned seed) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = noise(i, seed);
}

__global__ void add(unsigned* sum, const unsigned* values, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] += values[i];
}

class Cache {
  public:
    ~Cache() { give_back(); }

    unsigned* allocate(std::size_t bytes) {
        const auto cached = free_.find(bytes);
        if (cached != free_.end()) {
            unsigned* block = cached->second;
            free_.erase(cached);
            return block;
        }
        unsigned* block = nullptr;
        if (cudaMalloc(&block, bytes) == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            give_back();
            CHECK(cudaMalloc(&block, bytes));
        }
        return block;
    }
    void free(unsigned* block, std::size_t bytes) { free_.emplace(bytes, block); }

  private:
    void give_back() {
        for (const auto& [bytes, block] : free_) CHECK(cudaFree(block));
        free_.clear();
    }

    std::multimap<std::size_t, unsigned*> free_;
};

int main(int argc, char** argv) {
    const std::size_t all = bytes_to_use(argc, argv, 16);
    const unsigned phases = 4;
    Cache cache;
    const unsigned n = static_cast<unsigned>(all / 8 / sizeof(unsigned));
    unsigned* sum = cache.allocate(n * sizeof(unsigned));
    CHECK(cudaMemset(sum, 0, n * sizeof(unsigned)));
    std::vector<unsigned> expected(n, 0);
    for (unsigned phase = 0; phase < phases; ++phase) {
        const unsigned blocks = phase + 2;
        const unsigned words = static_cast<unsigned>(all / 4 / blocks / sizeof(unsigned));
        for (unsigned round = 0; round < 2; ++round) {
            std::vector<unsigned*> live;
            for (unsigned i = 0; i < blocks; ++i) {
                live.push_back(cache.allocate(words * sizeof(unsigned)));
                fill<<<blocks_for(words), 256>>>(live[i], words, phase * 100 + round * 10 + i);
                CHECK_LAUNCH();
            }
            for (unsigned i = 0; i < blocks; ++i) {
                const unsigned m = std::min(n, words);
                add<<<blocks_for(m), 256>>>(sum, live[i], m);
                CHECK_LAUNCH();
                for (unsigned k = 0; k < m; ++k) expected[k] += noise(k, phase * 100 + round * 10 + i);
                cache.free(live[i], words * sizeof(unsigned));
            }
        }
    }
    std::vector<unsigned> found(n);
    CHECK(cudaMemcpy(found.data(), sum, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < n; ++i) {
        if (found[i] != expected[i]) FAIL("element %u: %u, not %u", i, found[i], expected[i]);
    }
    cache.free(sum, n * sizeof(unsigned));
    return succeed();
}

// Variables of device code: initial values, copies to and from them, and pointers stored in them, in
// __device__,
// __constant__ and __managed__ memory.
#include "check.h"

struct Table {
    unsigned* rows[4];
    unsigned scale;
};

__device__ unsigned seeds[4] = {3, 1, 4, 1};
constexpr unsigned kExpectedSeeds[4] = {3, 1, 5, 1};  // after the copies
__device__ unsigned* second_seed = &seeds[1];
__constant__ float factor = 0.5f;
__constant__ Table table;
__device__ unsigned* destination;
__managed__ unsigned managed_total = 40;

__global__ void fill(unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (unsigned row = 0; row < 4; ++row) table.rows[row][i] = noise(i, seeds[row]) * table.scale;
}

__global__ void combine(unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned sum = *second_seed + static_cast<unsigned>(factor * 8);
    for (unsigned row = 0; row < 4; ++row) sum += table.rows[row][i];
    destination[i] = sum;
    if (i == 0) atomicAdd(&managed_total, 2u);
}

constexpr unsigned kSets = 8;

struct Set {
    Table table = {};
    unsigned* out = nullptr;
};

// Copies to and from variables, in whole and in part, and what they refuse.
void copies() {
    CHECK_EQUAL(40u, managed_total);
    unsigned changed = 5;
    CHECK(cudaMemcpyToSymbol(seeds, &changed, sizeof(changed), 2 * sizeof(unsigned)));
    float new_factor = 1.5f;
    CHECK(cudaMemcpyToSymbol(factor, &new_factor, sizeof(new_factor)));
    unsigned read_back[4];
    CHECK(cudaMemcpyFromSymbol(read_back, seeds, sizeof(read_back)));
    for (int i = 0; i < 4; ++i) CHECK_EQUAL(kExpectedSeeds[i], read_back[i]);

    void* address = nullptr;
    std::size_t size = 0;
    CHECK(cudaGetSymbolAddress(&address, seeds));
    CHECK(cudaGetSymbolSize(&size, seeds));
    CHECK_EQUAL(sizeof(seeds), size);
    CHECK(cudaMemcpy(read_back, address, sizeof(read_back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; ++i) CHECK_EQUAL(kExpectedSeeds[i], read_back[i]);
    CHECK_ERROR(cudaErrorInvalidValue, cudaMemcpyToSymbol(seeds, read_back, sizeof(read_back), 4));
    CHECK_ERROR(cudaErrorInvalidSymbol, cudaMemcpyToSymbol(&changed, read_back, 4));
}

int main(int argc, char** argv) {
    const unsigned n = static_cast<unsigned>(bytes_to_use(argc, argv, 5) / kSets / 5 / sizeof(unsigned));
    copies();
    Set sets[kSets];
    for (unsigned s = 0; s < kSets; ++s) {
        sets[s].table.scale = 7 + s;
        for (unsigned*& row : sets[s].table.rows) CHECK(cudaMalloc(&row, n * sizeof(unsigned)));
        CHECK(cudaMalloc(&sets[s].out, n * sizeof(unsigned)));
    }
    for (Set& set : sets) {
        CHECK(cudaMemcpyToSymbol(table, &set.table, sizeof(set.table)));
        CHECK(cudaMemcpyToSymbolAsync(destination, &set.out, sizeof(set.out), 0, cudaMemcpyHostToDevice,
                                      nullptr));
        fill<<<blocks_for(n), 256>>>(n);
        CHECK_LAUNCH();
        combine<<<blocks_for(n), 256>>>(n);
        CHECK_LAUNCH();
    }
    std::vector<unsigned> host(n);
    for (const Set& set : sets) {
        CHECK(cudaMemcpy(host.data(), set.out, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < n; ++i) {
            unsigned expected = 1 + 12;
            for (const unsigned seed : kExpectedSeeds) expected += noise(i, seed) * set.table.scale;
            if (host[i] != expected) FAIL("element %u: %u, not %u", i, host[i], expected);
        }
        for (unsigned* row : set.table.rows) CHECK(cudaFree(row));
        CHECK(cudaFree(set.out));
    }
    CHECK_EQUAL(40u + 2 * kSets, managed_total);
    return succeed();
}

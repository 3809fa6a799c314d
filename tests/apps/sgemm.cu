// C = A B with tiles in shared memory, over many products. The matrices are small whole numbers of rank one,
// so that every element is known without a second multiplication and exact.
#include "check.h"

constexpr unsigned kTile = 16;
constexpr unsigned kSize = 192;

__global__ void multiply(const float* a, const float* b, float* c, unsigned n) {
    __shared__ float tile_a[kTile][kTile];
    __shared__ float tile_b[kTile][kTile];
    unsigned row = blockIdx.y * kTile + threadIdx.y;
    unsigned column = blockIdx.x * kTile + threadIdx.x;
    float sum = 0;
    for (unsigned k = 0; k < n; k += kTile) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (unsigned i = 0; i < kTile; ++i) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// Element `i` of vector `which` of product `product`: -4 to 4.
float entry(std::size_t product, unsigned which, unsigned i) {
    return static_cast<float>(static_cast<int>(noise(product * kSize + i, which) % 9) - 4);
}

int main(int argc, char** argv) {
    const std::size_t bytes = kSize * kSize * sizeof(float);
    const std::size_t products = std::max<std::size_t>(bytes_to_use(argc, argv, 6) / (3 * bytes), 1);
    std::vector<float*> a(products), b(products), c(products);
    std::vector<float> host(kSize * kSize);
    for (std::size_t p = 0; p < products; ++p) {
        for (float** matrix : {&a[p], &b[p], &c[p]}) CHECK(cudaMalloc(matrix, bytes));
        for (unsigned which : {0u, 2u}) {
            for (unsigned i = 0; i < kSize; ++i) {
                for (unsigned j = 0; j < kSize; ++j) {
                    host[i * kSize + j] = entry(p, which, i) * entry(p, which + 1, j);
                }
            }
            CHECK(cudaMemcpy(which == 0 ? a[p] : b[p], host.data(), bytes, cudaMemcpyHostToDevice));
        }
    }
    const dim3 grid(kSize / kTile, kSize / kTile), block(kTile, kTile);
    for (std::size_t p = 0; p < products; ++p) {
        multiply<<<grid, block>>>(a[p], b[p], c[p], kSize);
        CHECK_LAUNCH();
    }
    for (std::size_t p = 0; p < products; ++p) {
        CHECK(cudaMemcpy(host.data(), c[p], bytes, cudaMemcpyDeviceToHost));
        float inner = 0;
        for (unsigned k = 0; k < kSize; ++k) inner += entry(p, 1, k) * entry(p, 2, k);
        for (unsigned i = 0; i < kSize; ++i) {
            for (unsigned j = 0; j < kSize; ++j) {
                float expected = entry(p, 0, i) * inner * entry(p, 3, j);
                float found = host[i * kSize + j];
                if (found != expected) FAIL("product %zu at %u, %u: %g, not %g", p, i, j, found, expected);
            }
        }
        for (float* matrix : {a[p], b[p], c[p]}) CHECK(cudaFree(matrix));
    }
    return succeed();
}

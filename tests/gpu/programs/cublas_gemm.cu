// Products by cuBLAS: plain ones, a batch by a table of pointers in device memory, a strided batch; through
// one handle in two streams in turn.
#include <cublas_v2.h>

#include "tests/apps/check.h"
#include "tests/gpu/programs/digest.h"

#define BLAS(call)                                                                        \
    do {                                                                                  \
        cublasStatus_t blas_status = (call);                                              \
        if (blas_status != CUBLAS_STATUS_SUCCESS)                                         \
            FAIL("line %d: %s: %s", __LINE__, #call, cublasGetStatusString(blas_status)); \
    } while (0)

constexpr int kSize = 512;
constexpr std::size_t kWords = std::size_t{kSize} * kSize, kBytes = kWords * sizeof(float);

__global__ void fill(float* to, unsigned count, unsigned seed) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = static_cast<float>(noise(i, seed) % 2001) / 1000.0f - 1.0f;
}

int main(int argc, char** argv) {
    const int matrices = static_cast<int>(std::max<std::size_t>(bytes_to_use(argc, argv, 64) / kBytes, 8));
    std::vector<float*> m(matrices);
    for (int i = 0; i < matrices; ++i) {
        CHECK(cudaMalloc(&m[i], kBytes));
        fill<<<blocks_for(kWords), 256>>>(m[i], kWords, static_cast<unsigned>(i));
    }
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    cudaStream_t streams[2];
    for (cudaStream_t& stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cublasHandle_t blas;
    BLAS(cublasCreate(&blas));
    const float scale = 1.0f / kSize, none = 0.0f, some = 0.5f;

    for (int i = 0; i + 2 < matrices; i += 3) {
        BLAS(cublasSetStream(blas, streams[i % 2]));
        BLAS(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_T, kSize, kSize, kSize, &scale, m[i], kSize, m[i + 1],
                         kSize, &some, m[i + 2], kSize));
    }
    CHECK(cudaDeviceSynchronize());

    // A quarter of the matrices times the next quarter into the one after it, by pointers.
    const int batch = matrices / 4;
    float** table;
    CHECK(cudaMalloc(&table, 3 * batch * sizeof(float*)));
    CHECK(cudaMemcpy(table, m.data(), 3 * batch * sizeof(float*), cudaMemcpyHostToDevice));
    BLAS(cublasSetStream(blas, streams[0]));
    BLAS(cublasSgemmBatched(blas, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &scale, table, kSize,
                            table + batch, kSize, &none, table + 2 * batch, kSize, batch));
    CHECK(cudaStreamSynchronize(streams[0]));

    float* block;
    CHECK(cudaMalloc(&block, 3 * kBytes * 4));
    fill<<<blocks_for(12 * kWords), 256>>>(block, 12 * kWords, 99);
    CHECK(cudaDeviceSynchronize());
    BLAS(cublasSgemmStridedBatched(blas, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &scale, block, kSize,
                                   kWords, block + 4 * kWords, kSize, kWords, &none, block + 8 * kWords,
                                   kSize, kWords, 4));
    CHECK(cudaDeviceSynchronize());

    Digest digest;
    std::vector<float> host(12 * kWords);
    for (float* matrix : m) {
        CHECK(cudaMemcpy(host.data(), matrix, kBytes, cudaMemcpyDeviceToHost));
        digest.add(host.data(), kBytes);
        CHECK(cudaFree(matrix));
    }
    CHECK(cudaMemcpy(host.data(), block, 12 * kBytes, cudaMemcpyDeviceToHost));
    digest.add(host.data(), 12 * kBytes);
    CHECK(cudaFree(block));
    CHECK(cudaFree(table));
    BLAS(cublasDestroy(blas));
    digest.print("cublas");
    return succeed();
}

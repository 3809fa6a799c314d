// Many tensors in one allocation that the program divides itself: divided MIB STEPS READS shown|hidden
// [mapped]. Each word of a tensor is made of READS words of the one beside it, step after step, to and fro.
// "hidden": the kernel's code does not show where the tensors are. "mapped": the program maps that memory
// itself, of a handle for every two tensors.
#include <cuda.h>

#include <string>

#include "check.h"

constexpr std::size_t kBytes = 128 << 10;
constexpr unsigned kWords = kBytes / sizeof(unsigned);
constexpr unsigned kThreads = 256, kBlocks = 8;

__host__ __device__ unsigned made(unsigned own, const unsigned* from, unsigned at, unsigned reads) {
    for (unsigned i = 0; i < reads; ++i) own = own * 5 + from[(at + 31 * i) % kWords];
    return own;
}

// 0, which PTX does not show.
__device__ unsigned hidden_zero() {
    unsigned zero;
    asm volatile("mov.u32 %0, %%clock; sub.u32 %0, %0, %0;" : "=r"(zero));
    return zero;
}

template <bool kHidden>
__global__ void pass(unsigned* to, const unsigned* from, unsigned reads) {
    if (kHidden) to += hidden_zero(), from += hidden_zero();
    const unsigned threads = gridDim.x * blockDim.x;
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < kWords; at += threads)
        to[at] = made(to[at], from, at, reads);
}

void check(CUresult status) {
    if (status == CUDA_SUCCESS) return;
    std::fprintf(stderr, "divided: error %d\n", static_cast<int>(status));
    std::exit(1);
}

unsigned* mapped(std::size_t bytes) {
    const CUmemAllocationProp properties{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access{.location = properties.location,
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;
    check(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    for (std::size_t at = 0; at < bytes; at += 2 * kBytes) {
        CUmemGenericAllocationHandle handle = 0;
        check(cuMemCreate(&handle, 2 * kBytes, &properties, 0));
        check(cuMemMap(address + at, 2 * kBytes, 0, handle, 0));
        check(cuMemRelease(handle));
    }
    check(cuMemSetAccess(address, bytes, &access, 1));
    return reinterpret_cast<unsigned*>(address);
}

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    const std::size_t tensors = std::atoi(argv[1]) * kMiB / kBytes;
    const int steps = std::atoi(argv[2]);
    const unsigned reads = std::atoi(argv[3]);
    const auto kernel = argv[4] == std::string("hidden") ? pass<true> : pass<false>;
    CHECK(cudaFree(nullptr));
    unsigned* pool = nullptr;
    if (argc > 5 && argv[5] == std::string("mapped")) {
        pool = mapped(tensors * kBytes);
    } else {
        CHECK(cudaMalloc(&pool, tensors * kBytes));
    }
    std::vector<std::vector<unsigned>> expected(tensors, std::vector<unsigned>(kWords));
    for (std::size_t i = 0; i < tensors; ++i) {
        for (unsigned at = 0; at < kWords; ++at) expected[i][at] = noise(at, static_cast<unsigned>(i));
        CHECK(cudaMemcpy(pool + i * kWords, expected[i].data(), kBytes, cudaMemcpyHostToDevice));
    }
    const auto both = [&](std::size_t to, std::size_t from) {
        kernel<<<kBlocks, kThreads>>>(pool + to * kWords, pool + from * kWords, reads);
        for (unsigned at = 0; at < kWords; ++at)
            expected[to][at] = made(expected[to][at], expected[from].data(), at, reads);
    };
    for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 1; i < tensors; ++i) both(i, i - 1);
        for (std::size_t i = tensors - 1; i > 0; --i) both(i - 1, i);
        CHECK_LAUNCH();
    }
    std::vector<unsigned> got(kWords);
    for (std::size_t i = 0; i < tensors; ++i) {
        CHECK(cudaMemcpy(got.data(), pool + i * kWords, kBytes, cudaMemcpyDeviceToHost));
        if (got != expected[i]) {
            std::printf("tensor %zu is wrong\n", i);
            return 1;
        }
    }
    std::printf("ok\n");
    return 0;
}

// Streams of every priority and with attributes, and launches that ask how many blocks fit.
#include "batches.h"

__global__ void transform(const unsigned* in, unsigned* out, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = in[i] * 7 + blockDim.x % 32;
}

__global__ void __launch_bounds__(128) bounded(unsigned* values) {
    __shared__ unsigned memory[1024];
    memory[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = memory[blockDim.x - 1 - threadIdx.x];
}

void occupancy() {
    int blocks = 0, grid = 0, block = 0;
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, transform, 256, 0));
    if (blocks < 1 || blocks * 256 > properties.maxThreadsPerMultiProcessor) FAIL("%d blocks of 256", blocks);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded));
    if (block < 32 || block > 128) FAIL("blocks of %d for a kernel that takes 128", block);
    // Of shared memory there is room for fewer.
    const std::size_t most = properties.sharedMemPerBlock;
    int large = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&large, transform, 32, most));
    if (large < 1 || large * most > properties.sharedMemPerMultiprocessor)
        FAIL("%d blocks of %zu", large, most);
    std::size_t room = 0;
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&room, bounded, 1, 128));
    if (room == 0 || room > properties.sharedMemPerMultiprocessor - 4096) FAIL("room for %zu", room);
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, bounded));
    CHECK_EQUAL(std::size_t{4096}, attributes.sharedSizeBytes);
    CHECK_EQUAL(128, attributes.maxThreadsPerBlock);
    const Buffer<unsigned> values(std::vector<unsigned>(256, 5));
    bounded<<<1, 256>>>(values.get());
    CHECK_ERROR(cudaErrorInvalidValue, cudaPeekAtLastError());
    bounded<<<1, 128>>>(values.get());
    CHECK_LAUNCH();
    values.expect(std::vector<unsigned>(256, 5), "reversed");
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    occupancy();
    int least = -1, greatest = 1;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (least < greatest) FAIL("priorities from %d to %d", least, greatest);
    std::vector<cudaStream_t> streams;
    for (int wanted = least + 1; wanted >= greatest - 1; --wanted) {
        cudaStream_t stream;
        CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, wanted));
        int priority = 100;
        unsigned flags = 0;
        CHECK(cudaStreamGetPriority(stream, &priority));
        CHECK_EQUAL(std::min(std::max(wanted, greatest), least), priority);
        CHECK(cudaStreamGetFlags(stream, &flags));
        CHECK_EQUAL(static_cast<unsigned>(cudaStreamNonBlocking), flags);
        cudaStreamAttrValue value = {};
        value.syncPolicy = cudaSyncPolicyYield;
        CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeSynchronizationPolicy, &value));
        if (!streams.empty()) CHECK(cudaStreamCopyAttributes(stream, streams[0]));
        value = {};
        CHECK(cudaStreamGetAttribute(stream, cudaStreamAttributeSynchronizationPolicy, &value));
        CHECK_EQUAL(static_cast<int>(cudaSyncPolicyYield), static_cast<int>(value.syncPolicy));
        streams.push_back(stream);
    }
    int grid = 0, block = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, transform));
    std::size_t next = 0;
    over_batches<unsigned, unsigned>(
        bytes, "transformed", [](std::size_t i) { return noise(i); },
        [&](const unsigned* in, unsigned* out, unsigned n) {
            cudaLaunchAttribute priority = {};
            priority.id = cudaLaunchAttributePriority;
            priority.val.priority = greatest;
            cudaLaunchConfig_t config = {};
            config.gridDim = dim3(grid);
            config.blockDim = dim3(block);
            config.stream = streams[next++ % streams.size()];
            config.attrs = &priority;
            config.numAttrs = 1;
            // What was copied and filled in the default stream comes first.
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaLaunchKernelEx(&config, transform, in, out, n));
        },
        [&](std::vector<unsigned> in) {
            // The first to look waits for all.
            CHECK(cudaDeviceSynchronize());
            for (unsigned& value : in) value = value * 7 + static_cast<unsigned>(block) % 32;
            return in;
        });
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    return succeed();
}

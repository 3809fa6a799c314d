// The runtime calls that programs make beside launches and copies: what can be asked of the device, managed
// and mapped host memory, cooperative launches, launches with attributes, occupancy, limits.
#include <cooperative_groups.h>
#include <cuda_profiler_api.h>

#include "check.h"

namespace cg = cooperative_groups;

// Every block adds what all blocks wrote before the barrier.
__global__ void exchange(unsigned* values, unsigned* sums) {
    cg::grid_group grid = cg::this_grid();
    if (threadIdx.x == 0) values[blockIdx.x] = blockIdx.x + 1;
    grid.sync();
    if (threadIdx.x == 0) {
        unsigned sum = 0;
        for (unsigned block = 0; block < gridDim.x; ++block) sum += values[block];
        sums[blockIdx.x] = sum;
    }
}

__global__ void twice(unsigned* values, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= 2;
}

__global__ void reverse(unsigned* values) {
    extern __shared__ unsigned copy[];
    copy[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

void device() {
    int version = 0;
    CHECK(cudaRuntimeGetVersion(&version));
    CHECK_EQUAL(CUDART_VERSION, version);
    CHECK(cudaDriverGetVersion(&version));
    if (version < CUDART_VERSION / 1000 * 1000) FAIL("driver version %d", version);

    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    int value = 0;
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
    CHECK_EQUAL(properties.warpSize, value);
    CHECK_EQUAL(32, value);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, 0));
    CHECK_EQUAL(properties.maxThreadsPerBlock, value);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxGridDimX, 0));
    CHECK_EQUAL(properties.maxGridSize[0], value);
    if (properties.name[0] == '\0' || properties.multiProcessorCount < 1)
        FAIL("a device without a name or processors");
    std::size_t free = 0, total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    CHECK_EQUAL(properties.totalGlobalMem, total);
    if (free > total) FAIL("%zu free of %zu", free, total);

    cudaDeviceProp wanted = {};
    int chosen = -1;
    CHECK(cudaChooseDevice(&chosen, &wanted));
    CHECK_EQUAL(0, chosen);
    char bus[32];
    CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
    CHECK(cudaDeviceGetByPCIBusId(&value, bus));
    CHECK_EQUAL(0, value);

    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    unsigned flags = 0;
    CHECK(cudaGetDeviceFlags(&flags));
    CHECK_EQUAL(static_cast<unsigned>(cudaDeviceScheduleBlockingSync), flags & cudaDeviceScheduleMask);
    CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    std::size_t limit = 0;
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize));
    if (limit < (2 << 20)) FAIL("a limit of %zu", limit);
    CHECK(cudaDeviceCanAccessPeer(&value, 0, 0));
    CHECK_EQUAL(0, value);
    CHECK(cudaFuncSetCacheConfig(twice, cudaFuncCachePreferL1));
    CHECK(cudaProfilerStart());
    CHECK(cudaProfilerStop());
}

void launches() {
    const unsigned blocks = 6;
    unsigned *values, *sums;
    CHECK(cudaMalloc(&values, blocks * sizeof(unsigned)));
    CHECK(cudaMalloc(&sums, blocks * sizeof(unsigned)));
    void* arguments[] = {&values, &sums};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(exchange), dim3(blocks), dim3(64), arguments, 0,
                                      nullptr));
    unsigned found[blocks];
    CHECK(cudaMemcpy(found, sums, sizeof(found), cudaMemcpyDeviceToHost));
    for (unsigned sum : found) CHECK_EQUAL(blocks * (blocks + 1) / 2, sum);

    // The same by attributes.
    CHECK(cudaMemset(sums, 0, sizeof(found)));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(32);
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, exchange, values, sums));
    CHECK(cudaMemcpy(found, sums, sizeof(found), cudaMemcpyDeviceToHost));
    for (unsigned sum : found) CHECK_EQUAL(blocks * (blocks + 1) / 2, sum);
    int per_processor = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, exchange, 64, 0));
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    config.gridDim = dim3(per_processor * properties.multiProcessorCount + 1);
    config.blockDim = dim3(64);
    CHECK_ERROR(cudaErrorCooperativeLaunchTooLarge, cudaLaunchKernelEx(&config, exchange, values, sums));
    int grid = 0, block = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, twice));
    if (grid < 1 || block < 32) FAIL("a best launch of %d blocks of %d", grid, block);

    // Dynamic shared memory
    unsigned* row;
    CHECK(cudaMalloc(&row, 512 * sizeof(unsigned)));
    std::vector<unsigned> host(512);
    for (unsigned i = 0; i < 512; ++i) host[i] = noise(i);
    CHECK(cudaMemcpy(row, host.data(), 512 * sizeof(unsigned), cudaMemcpyDefault));
    reverse<<<1, 512, 512 * sizeof(unsigned)>>>(row);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(host.data(), row, 512 * sizeof(unsigned), cudaMemcpyDefault));
    for (unsigned i = 0; i < 512; ++i) CHECK_EQUAL(noise(511 - i), host[i]);
    for (unsigned* memory : {values, sums, row}) CHECK(cudaFree(memory));
}

void host_memory(std::size_t bytes) {
    const unsigned n = static_cast<unsigned>(bytes / sizeof(unsigned));
    auto fill = [&](unsigned* values) {
        for (unsigned i = 0; i < n; ++i) values[i] = noise(i);
    };
    auto verify = [&](const unsigned* values, const char* what) {
        for (unsigned i = 0; i < n; ++i) {
            if (values[i] != noise(i) * 2)
                FAIL("%s, element %u: %u, not %u", what, i, values[i], noise(i) * 2);
        }
    };
    unsigned* managed;
    CHECK(cudaMallocManaged(&managed, bytes));
    fill(managed);
    cudaMemLocation here = {};
    here.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemAdvise(managed, bytes, cudaMemAdviseSetPreferredLocation, here));
    CHECK(cudaMemPrefetchAsync(managed, bytes, here, 0));
    twice<<<blocks_for(n), 256>>>(managed, n);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    verify(managed, "managed memory");
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, managed));
    CHECK_EQUAL(static_cast<int>(cudaMemoryTypeManaged), static_cast<int>(attributes.type));
    CHECK(cudaFree(managed));

    unsigned *mapped, *mapped_device;
    CHECK(cudaHostAlloc(&mapped, bytes, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&mapped_device, mapped, 0));
    fill(mapped);
    twice<<<blocks_for(n), 256>>>(mapped_device, n);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    verify(mapped, "mapped memory");
    CHECK(cudaFreeHost(mapped));

    std::vector<unsigned> own(n);
    fill(own.data());
    unsigned* registered;
    CHECK(cudaHostRegister(own.data(), bytes, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&registered, own.data(), 0));
    twice<<<blocks_for(n), 256>>>(registered, n);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    verify(own.data(), "registered memory");
    CHECK_ERROR(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(own.data(), bytes, 0));
    CHECK(cudaHostUnregister(own.data()));
    CHECK_ERROR(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(own.data()));
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 1);
    device();
    launches();
    host_memory(bytes);
    return succeed();
}

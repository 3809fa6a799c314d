// Many small allocations at once: those beyond the first thousands are cut from larger pieces.
#include <unistd.h>

#include <algorithm>
#include <random>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

constexpr std::size_t kMany = 6000;  // some have pages of their own, some are cut from pieces
constexpr std::size_t kSystemPage = 4096;

struct Small {
    CUdeviceptr at = 0;
    std::size_t bytes = 0;
    std::uint8_t value = 0;  // of every byte
};

std::vector<Small> allocate(std::size_t count, std::size_t least, std::size_t most, std::mt19937& random) {
    std::uniform_int_distribution<std::size_t> sizes(least, most);
    std::vector<Small> all(count);
    for (Small& small : all) {
        small.bytes = sizes(random);
        small.value = static_cast<std::uint8_t>(random());
        OK(cuMemAlloc, &small.at, small.bytes);
        OK(cuMemsetD8, small.at, small.value, small.bytes);
    }
    return all;
}

bool holds(const Small& small) {
    const auto found = read_back(small.at, small.bytes);
    return std::all_of(found.begin(), found.end(), [&](std::uint8_t byte) { return byte == small.value; });
}

// Any address of an allocation leads to its beginning and size.
bool is_told(const Small& small, std::size_t offset) {
    CUdeviceptr base = 0, start = 0;
    std::size_t bytes = 0, size = 0;
    OK(cuMemGetAddressRange, &base, &bytes, small.at + offset);
    OK(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, small.at + offset);
    OK(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, small.at + offset);
    return base == small.at && bytes == small.bytes && start == base && size == bytes;
}

SIM_TEST("small memory: 100,000 allocations live at once and are freed in any order",
         {{"SIMCUDA_DELAY_US", "0"}}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    std::mt19937 random(1);
    std::vector<Small> all = allocate(100'000, 256, 4096, random);
    std::size_t sum = 0;
    for (const Small& small : all) sum += small.bytes;
    EXPECT(free_bytes() + sum <= before);
    std::vector<Small> sorted = all;
    std::sort(sorted.begin(), sorted.end(), [](const Small& a, const Small& b) { return a.at < b.at; });
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        const bool apart = i == 0 || sorted[i - 1].at + sorted[i - 1].bytes <= sorted[i].at;
        if (apart && sorted[i].at % 256 == 0) continue;
        EXPECT(!"allocations that are apart, and aligned");
        break;
    }
    std::shuffle(all.begin(), all.end(), random);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (!holds(all[i]) || !is_told(all[i], random() % all[i].bytes)) {
            EXPECT(!"each is whole, and told");
            break;
        }
        OK(cuMemFree, all[i].at);
    }
    EXPECT(free_bytes() == before);
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange, nullptr, nullptr, all.back().at);
}

SIM_TEST("small memory: what was freed is had again, and only then", {{"SIMCUDA_DELAY_US", "0"}}) {
    const Gpu gpu;
    std::mt19937 random(2);
    std::vector<Small> all = allocate(kMany, 300, 300, random);
    const std::size_t free = free_bytes();
    for (std::size_t round = 0; round < kMany; ++round) {
        Small& small = all[random() % all.size()];
        OK(cuMemFree, small.at);
        std::uint8_t byte = 0;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, small.at);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, small.at, 1);
        const CUdeviceptr old = small.at;
        OK(cuMemAlloc, &small.at, small.bytes);
        const auto fresh = read_back(small.at, small.bytes);
        EXPECT(small.at != old);  // late
        EXPECT(std::count(fresh.begin(), fresh.end(), 0) < 200 &&
               fresh != std::vector<std::uint8_t>(300, small.value));
        OK(cuMemsetD8, small.at, small.value, small.bytes);
    }
    EXPECT(std::all_of(all.begin(), all.end(), holds));
    EXPECT(free_bytes() <= free + (4 << 20) && free_bytes() + (4 << 20) >= free);
}

SIM_TEST("small memory: copies and fills beyond one are refused, wherever it lies", {}) {
    const Gpu gpu;
    std::mt19937 random(3);
    const std::vector<Small> all = allocate(kMany, 512, 512, random);
    std::vector<std::uint8_t> host(1024);
    for (const Small* small : {&all.front(), &all.back()}) {
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD, small->at, host.data(), 513);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, host.data(), small->at + 511, 2);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8, small->at, 1, 513);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD, small->at, all[7].at, 513);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, small->at + 256);
    }
    EXPECT(std::all_of(all.begin(), all.end(), holds));
}

SIM_TEST("small memory: beside any number of others, running over the first ones' pages faults", {}) {
    const Gpu gpu;
    const Kernels kernels;
    std::mt19937 random(4);
    const std::vector<Small> all = allocate(kMany, 512, 512, random);
    LAUNCH(kernels["store"], 1, 1, nullptr, all.front().at + kSystemPage, 7u);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
}

SIM_TEST("small memory: what is left of a piece when all of it was freed faults", {}) {
    const Gpu gpu;
    const Kernels kernels;
    std::mt19937 random(5);
    const std::vector<Small> all = allocate(kMany, 512, 512, random);
    LAUNCH(kernels["store"], 1, 1, nullptr, all.back().at, 7u);
    OK(cuCtxSynchronize);
    for (const Small& small : all) OK(cuMemFree, small.at);
    LAUNCH(kernels["store"], 1, 1, nullptr, all.back().at, 7u);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
}

SIM_TEST("small memory: a GPU too small for further pieces is filled all the same",
         {{"SIMCUDA_MEMORY", "24M"}}) {
    const Gpu gpu;
    std::vector<CUdeviceptr> all;
    for (CUdeviceptr p = 0; CU(cuMemAlloc)(&p, kSystemPage) == CUDA_SUCCESS;) all.push_back(p);
    EXPECT(all.size() > 4096);
    EXPECT(free_bytes() < kSystemPage);
    for (const CUdeviceptr p : all) OK(cuMemFree, p);
    EXPECT(free_bytes() > 23 << 20);
}

SIM_TEST("small memory: of pools as well", {{"SIMCUDA_DELAY_US", "0"}}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const std::size_t with_stream = free_bytes();
    std::mt19937 random(6);
    std::vector<CUdeviceptr> all(40'000);
    for (CUdeviceptr& p : all) OK(cuMemAllocAsync, &p, 512, stream);
    std::shuffle(all.begin(), all.end(), random);
    for (const CUdeviceptr p : all) OK(cuMemFreeAsync, p, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(free_bytes() == with_stream);
    EXPECT(with_stream <= before);
    CUmemoryPool pool = nullptr;
    std::uint64_t used = 1;
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    EXPECT(used == 0);
}

SIM_TEST("small memory: another process maps one by itself", {}) {
    int to_other[2], to_first[2];
    EXPECT(::pipe(to_other) == 0 && ::pipe(to_first) == 0);
    const auto other = fork_body([&] {
        const Gpu gpu;
        CUipcMemHandle handles[2];
        EXPECT(::read(to_other[0], handles, sizeof handles) == sizeof handles);
        CUdeviceptr p[2] = {};
        for (int i = 0; i < 2; ++i)
            OK(cuIpcOpenMemHandle, &p[i], handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        EXPECT(read_back(p[0], 700) == pattern(700, 1));
        EXPECT(read_back(p[1], 700) == pattern(700, 2));
        std::uint8_t byte = 0;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, p[1] + 700, 1);
        OK(cuMemcpyHtoD, p[1], pattern(700, 3).data(), 700);
        OK(cuCtxSynchronize);
        OK(cuIpcCloseMemHandle, p[0]);
        OK(cuIpcCloseMemHandle, p[1]);
        EXPECT(::write(to_first[1], "", 1) == 1);
    });
    const Gpu gpu;
    std::mt19937 random(7);
    std::vector<Small> all = allocate(kMany, 700, 700, random);
    const CUdeviceptr last = all[kMany - 1].at, before = all[kMany - 2].at;
    EXPECT(last % kSystemPage != 0 || before % kSystemPage != 0);
    OK(cuMemcpyHtoD, before, pattern(700, 1).data(), 700);
    OK(cuMemcpyHtoD, last, pattern(700, 2).data(), 700);
    OK(cuCtxSynchronize);
    CUipcMemHandle handles[2];
    OK(cuIpcGetMemHandle, &handles[0], before);
    OK(cuIpcGetMemHandle, &handles[1], last);
    EXPECT(::write(to_other[1], handles, sizeof handles) == sizeof handles);
    std::uint8_t done = 0;
    EXPECT(::read(to_first[0], &done, 1) == 1);
    join(other);
    EXPECT(read_back(before, 700) == pattern(700, 1));
    EXPECT(read_back(last, 700) == pattern(700, 3));
    all.resize(kMany - 2);
    EXPECT(std::all_of(all.begin(), all.end(), holds));
}

}  // namespace

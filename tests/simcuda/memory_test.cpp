// Device memory: capacity, poison, addresses, what is freed and what is refused.
#include <algorithm>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

constexpr std::size_t kMiB = 1 << 20;

SIM_TEST("memory: capacity is what the knob says and memory beyond it is refused",
         {{"SIMCUDA_MEMORY", "64M"}}) {
    const Gpu gpu;
    std::size_t free = 0, total = 0, device_total = 0;
    OK(cuMemGetInfo, &free, &total);
    OK(cuDeviceTotalMem, &device_total, gpu.device);
    EXPECT(total == 64 * kMiB);
    EXPECT(device_total == total);
    EXPECT(free < total);  // the context takes some
    EXPECT(free > 60 * kMiB);
    CUdeviceptr big = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &big, 64 * kMiB);
    std::vector<CUdeviceptr> blocks;
    CUresult result = CUDA_SUCCESS;
    for (CUdeviceptr p = 0; (result = CU(cuMemAlloc)(&p, 4 * kMiB)) == CUDA_SUCCESS;) blocks.push_back(p);
    EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(blocks.size() == 15);
    for (CUdeviceptr p : blocks) OK(cuMemFree, p);
    EXPECT(free_bytes() == free);
}

SIM_TEST("memory: memory in pieces is one allocation all the same", {{"SIMCUDA_MEMORY", "16M"}}) {
    const Gpu gpu;
    std::vector<CUdeviceptr> small;
    for (CUdeviceptr p = 0; CU(cuMemAlloc)(&p, 512 << 10) == CUDA_SUCCESS;) small.push_back(p);
    for (std::size_t i = 0; i < small.size(); i += 2) OK(cuMemFree, small[i]);
    CUdeviceptr big = 0;
    OK(cuMemAlloc, &big, 4 * kMiB);
    const auto data = pattern(4 * kMiB, 7);
    OK(cuMemcpyHtoD, big, data.data(), data.size());
    EXPECT(read_back(big, data.size()) == data);
}

SIM_TEST("memory: fresh and recycled memory is poisoned, differently each time", {{"SIMCUDA_MEMORY", "8M"}}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4 * kMiB);
    const auto first = read_back(p, 4 * kMiB);
    for (std::size_t i = 0; i < first.size(); i += 4) {
        std::uint32_t word = 0;
        std::copy_n(&first[i], 4, reinterpret_cast<std::uint8_t*>(&word));
        if (word == 0) {
            EXPECT(word != 0);
            break;
        }
    }
    const std::vector<std::uint8_t> zeros(4 * kMiB);
    OK(cuMemcpyHtoD, p, zeros.data(), zeros.size());
    OK(cuMemFree, p);
    OK(cuMemAlloc, &p, 4 * kMiB);
    const auto second = read_back(p, 4 * kMiB);
    EXPECT(second != zeros);
    EXPECT(second != first);
    EXPECT(std::count(second.begin(), second.end(), 0) < 2 * static_cast<long>(kMiB));
}

SIM_TEST("memory: the CPU cannot touch device memory at its device address", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, kMiB);
    EXPECT(!cpu_can_read(p));
    const char on_stack = 0;
    EXPECT(cpu_can_read(reinterpret_cast<std::uint64_t>(&on_stack)));
}

SIM_TEST("memory: only the start of a live allocation can be freed, once", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, kMiB);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, p + 4096);
    OK(cuMemFree, p);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, p);
    OK(cuMemFree, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc, &p, 0);
}

SIM_TEST("memory: copies outside an allocation are refused", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 10000);
    std::vector<std::uint8_t> host(20000);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD, p, host.data(), 10001);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, host.data(), p + 9999, 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, host.data(), 0x1000, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8, p + 5000, 1, 5001);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32, p + 2, 1, 1);
    OK(cuMemcpyDtoH, host.data(), p, 10000);
    OK(cuMemFree, p);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, host.data(), p, 1);
}

SIM_TEST("memory: an address is not given out again soon", {}) {
    const Gpu gpu;
    std::vector<CUdeviceptr> seen;
    for (int i = 0; i < 100; ++i) {
        CUdeviceptr p = 0;
        OK(cuMemAlloc, &p, kMiB);
        EXPECT(std::find(seen.begin(), seen.end(), p) == seen.end());
        EXPECT(p % 512 == 0);
        seen.push_back(p);
        OK(cuMemFree, p);
    }
}

SIM_TEST("memory: address ranges and pointer attributes tell what was allocated", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0, base = 0;
    std::size_t bytes = 0;
    OK(cuMemAlloc, &p, 12345);
    OK(cuMemGetAddressRange, &base, &bytes, p + 12344);
    EXPECT(base == p);
    EXPECT(bytes == 12345);
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange, &base, &bytes, p + 12345);
    unsigned type = 0;
    OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 1);
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    CUdeviceptr device = 0;
    OK(cuPointerGetAttribute, &device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 1);
    EXPECT(device == p + 1);
    void* host = nullptr;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute, &host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
          reinterpret_cast<CUdeviceptr>(&type));
    CUcontext context = nullptr;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* values[] = {&context, &host};
    host = &host;
    OK(cuPointerGetAttributes, 2, names, values, p);
    EXPECT(context == gpu.context);
    EXPECT(host == nullptr);
}

SIM_TEST("memory: freed context memory returns with the context", {{"SIMCUDA_MEMORY", "64M"}}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    CUcontext other = nullptr;
    OK(cuCtxCreate, &other, nullptr, 0, gpu.device);
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 8 * kMiB);
    EXPECT(free_bytes() < before - 8 * kMiB);
    OK(cuCtxDestroy, other);
    OK(cuCtxSetCurrent, gpu.context);
    EXPECT(free_bytes() == before);
    std::uint8_t byte = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, p, 1);
}

}  // namespace

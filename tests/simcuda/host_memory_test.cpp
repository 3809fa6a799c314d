// Page-locked, registered and managed memory.
#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

constexpr std::size_t kPage = 4096;

SIM_TEST("host memory: pinned memory is the same bytes for CPU and GPU", {}) {
    const Gpu gpu;
    std::uint8_t* host = nullptr;
    OK(cuMemHostAlloc, reinterpret_cast<void**>(&host), 10000, CU_MEMHOSTALLOC_DEVICEMAP);
    EXPECT(host[0] != 0 || host[1] != 0 || host[2] != 0);  // poisoned
    CUdeviceptr device = 0, copy = 0;
    OK(cuMemHostGetDevicePointer, &device, host, 0);
    OK(cuMemAlloc, &copy, 10000);
    const auto data = pattern(10000, 1);
    std::memcpy(host, data.data(), data.size());
    OK(cuMemcpyDtoD, copy, device, 10000);
    EXPECT(read_back(copy, 10000) == data);
    OK(cuMemsetD8, device, 7, 10000);  // waits: it is host memory
    EXPECT(host[0] == 7);
    EXPECT(host[9999] == 7);
    unsigned flags = 0, type = 0;
    OK(cuMemHostGetFlags, &flags, host);
    EXPECT(flags == CU_MEMHOSTALLOC_DEVICEMAP);
    OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
       reinterpret_cast<CUdeviceptr>(host + 5));
    EXPECT(type == CU_MEMORYTYPE_HOST);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, host + 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, device);
    OK(cuMemFreeHost, host);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, host);
}

SIM_TEST("host memory: what is write-combined has an address of the host's and one of the GPU's", {}) {
    const Gpu gpu;
    std::uint8_t* host = nullptr;
    OK(cuMemHostAlloc, reinterpret_cast<void**>(&host), 10000,
       CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED);
    CUdeviceptr device = 0, copy = 0, told = 0;
    OK(cuMemHostGetDevicePointer, &device, host, 0);
    EXPECT(device != reinterpret_cast<CUdeviceptr>(host));
    for (const CUdeviceptr from : {device, reinterpret_cast<CUdeviceptr>(host)}) {
        OK(cuPointerGetAttribute, &told, CU_POINTER_ATTRIBUTE_HOST_POINTER, from + 5);
        EXPECT(told == reinterpret_cast<CUdeviceptr>(host) + 5);
        OK(cuPointerGetAttribute, &told, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, from + 5);
        EXPECT(told == device + 5);
    }
    OK(cuMemAlloc, &copy, 10000);
    const auto data = pattern(10000, 1);
    std::memcpy(host, data.data(), data.size());
    for (const CUdeviceptr from : {device, reinterpret_cast<CUdeviceptr>(host)}) {
        OK(cuMemsetD8, copy, 0, 10000);
        OK(cuMemcpy, copy, from, 10000);
        EXPECT(read_back(copy, 10000) == data);
    }
    OK(cuMemsetD8, device, 7, 10000);
    EXPECT(host[9999] == 7);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, reinterpret_cast<void*>(device));
    OK(cuMemFreeHost, host);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute, &told, CU_POINTER_ATTRIBUTE_HOST_POINTER, device);
}

// True if all went well: a failure must not be thrown out of a thread.
bool take_and_give_back(CUcontext context) {
    bool good = CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS;
    for (int round = 0; round < 5000 && good; ++round) {
        void* host = nullptr;
        good = CU(cuMemHostAlloc)(&host, kPage, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS &&
               CU(cuMemsetD8)(reinterpret_cast<CUdeviceptr>(host), 7, kPage) == CUDA_SUCCESS &&
               static_cast<std::uint8_t*>(host)[kPage - 1] == 7 && CU(cuMemFreeHost)(host) == CUDA_SUCCESS;
    }
    return good;
}

SIM_TEST("host memory: what one thread gives back is not taken from one that gets the same addresses", {}) {
    const Gpu gpu;
    bool others = false;
    std::thread other([&] { others = take_and_give_back(gpu.context); });
    const bool own = take_and_give_back(gpu.context);
    other.join();
    EXPECT(own);
    EXPECT(others);
}

SIM_TEST("host memory: the host memory there may be is a knob", {{"SIMCUDA_HOST_MEMORY", "16M"}}) {
    const Gpu gpu;
    void *one = nullptr, *two = nullptr;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc, &one, 17 << 20, 0);
    OK(cuMemHostAlloc, &one, 10 << 20, 0);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc, &two, 10 << 20, 0);
    OK(cuMemFreeHost, one);
    OK(cuMemHostAlloc, &two, 10 << 20, 0);
}

SIM_TEST(
    "host memory: registered memory keeps its contents, is reached by the GPU, and is ordinary again after",
    {}) {
    const Gpu gpu;
    auto data = pattern(5 * kPage, 2);
    std::vector<std::uint8_t> host(data);
    std::uint8_t* part = host.data() + 100;
    const std::size_t bytes = 3 * kPage;
    const auto address = reinterpret_cast<CUdeviceptr>(part);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8, address, 1, 1);  // not yet
    OK(cuMemHostRegister, part, bytes, 0);
    EXPECT(host == data);
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister, part + 10, 10, 0);
    OK(cuMemsetD8, address + 50, 0x11, 2 * kPage);
    std::memset(&data[150], 0x11, 2 * kPage);
    EXPECT(host == data);
    host[200] = data[200] = 0x22;
    EXPECT(read_back(address, bytes) == std::vector<std::uint8_t>(part, part + bytes));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister, part + 1);
    OK(cuMemHostUnregister, part);
    EXPECT(host == data);
    host[300] = 0x33;
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, part);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8, address, 1, 1);
}

SIM_TEST("host memory: two registrations may share a page", {}) {
    const Gpu gpu;
    void* mapped = ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* host = static_cast<std::uint8_t*>(mapped);
    const auto address = reinterpret_cast<CUdeviceptr>(mapped);
    OK(cuMemHostRegister, host, kPage + 1000, 0);
    OK(cuMemHostRegister, host + kPage + 1000, kPage - 1000, 0);
    OK(cuMemsetD8, address, 1, kPage + 1000);
    OK(cuMemsetD8, address + kPage + 1000, 2, kPage - 1000);
    OK(cuMemHostUnregister, host);
    OK(cuMemsetD8, address + kPage + 1000, 3, 10);
    EXPECT(host[kPage + 999] == 1);
    EXPECT(host[kPage + 1000] == 3);
    EXPECT(host[kPage + 1010] == 2);
    OK(cuMemHostUnregister, host + kPage + 1000);
    EXPECT(host[0] == 1);
    EXPECT(host[2 * kPage - 1] == 2);
}

SIM_TEST("host memory: memory that is not there, or not to be read, cannot be registered", {}) {
    const Gpu gpu;
    void* mapped = ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(static_cast<std::uint8_t*>(mapped) + kPage, kPage);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister, mapped, 2 * kPage, 0);
    OK(cuMemHostRegister, mapped, kPage, 0);
    // More pages than are looked at together.
    const std::size_t bytes = 1000 * kPage;
    void* reserved = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::mprotect(static_cast<std::uint8_t*>(reserved) + bytes - kPage, kPage, PROT_NONE);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister, reserved, bytes, 0);
    OK(cuMemHostRegister, reserved, bytes - kPage, 0);
}

SIM_TEST("host memory: managed memory is one pointer for both sides", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAllocManaged, &p, 3 * kPage, CU_MEM_ATTACH_GLOBAL);
    auto* host = reinterpret_cast<std::uint8_t*>(p);
    const auto data = pattern(3 * kPage, 3);
    std::memcpy(host, data.data(), data.size());
    EXPECT(read_back(p, data.size()) == data);
    OK(cuMemsetD8, p, 9, 3 * kPage);
    OK(cuCtxSynchronize);
    EXPECT(host[3 * kPage - 1] == 9);
    unsigned managed = 0;
    OK(cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 1);
    EXPECT(managed == 1);
    OK(cuMemPrefetchAsync, p, 3 * kPage, CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, nullptr);
    OK(cuMemFree, p);
    EXPECT(!cpu_can_read(p));
}

}  // namespace

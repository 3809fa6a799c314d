// Calls of the driver that ordinary programs make and nothing else here does.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

SIM_TEST("driver: names, devices and errors as text", {}) {
    const Gpu gpu;
    char name[64] = {};
    OK(cuDeviceGetName, name, sizeof name, gpu.device);
    EXPECT(std::strlen(name) > 3);
    char shorter[4] = {'x', 'x', 'x', 'x'};
    OK(cuDeviceGetName, shorter, sizeof shorter, gpu.device);
    EXPECT(std::strlen(shorter) == 3 && std::strncmp(shorter, name, 3) == 0);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName, name, sizeof name, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName, nullptr, 4, gpu.device);
    const char* text = nullptr;
    OK(cuGetErrorString, CUDA_ERROR_OUT_OF_MEMORY, &text);
    EXPECT(std::strcmp(text, "out of memory") == 0);
    OK(cuGetErrorName, CUDA_ERROR_OUT_OF_MEMORY, &text);
    EXPECT(std::strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetErrorString, static_cast<CUresult>(12345), &text);
    EXPECT(text == nullptr);
    const auto get_device = reinterpret_cast<CUresult (*)(CUdevice*)>(symbol("cuCtxGetDevice"));
    CUdevice device = 7;
    EXPECT(get_device(&device) == CUDA_SUCCESS);
    EXPECT(device == gpu.device);
    EXPECT(get_device(nullptr) == CUDA_ERROR_INVALID_VALUE);
}

void hear(void*, CUlogLevel, char*, std::size_t) {}

// PyTorch listens from its first call on.
SIM_TEST("driver: the log has listeners and says nothing", {}) {
    CUlogsCallbackHandle first = nullptr, second = nullptr;
    OK(cuLogsRegisterCallback, hear, nullptr, &first);
    OK(cuLogsRegisterCallback, hear, nullptr, &second);
    OK(cuLogsRegisterCallback, hear, nullptr, nullptr);
    EXPECT(first != nullptr && second != nullptr && first != second);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsRegisterCallback, nullptr, nullptr, &first);
    CUlogIterator end = 1;
    OK(cuLogsCurrent, &end, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsCurrent, &end, 1);
    char text[4] = {'x', 'x', 'x', 'x'};
    std::size_t bytes = sizeof text;
    OK(cuLogsDumpToMemory, &end, text, &bytes, 0);
    EXPECT(bytes == 0 && text[0] == '\0');
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToMemory, &end, nullptr, &bytes, 0);
    char path[] = "/tmp/simcuda-log-XXXXXX";
    ::close(::mkstemp(path));
    OK(cuLogsDumpToFile, nullptr, path, 0);
    ::unlink(path);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToFile, nullptr, "/nowhere/log", 0);
    OK(cuLogsUnregisterCallback, first);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLogsUnregisterCallback, first);
    OK(cuLogsUnregisterCallback, second);
}

SIM_TEST("driver: a module out of a file", {}) {
    const Gpu gpu;
    char path[] = "/tmp/simcuda-module-XXXXXX";
    const int file = ::mkstemp(path);
    EXPECT(::write(file, kKernels.data(), kKernels.size()) == static_cast<ssize_t>(kKernels.size()));
    ::close(file);
    CUmodule module = nullptr;
    OK(cuModuleLoad, &module, path);
    ::unlink(path);
    CUfunction store = nullptr;
    OK(cuModuleGetFunction, &store, module, "store");
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4);
    LAUNCH(store, 1, 1, nullptr, p, 77u);
    EXPECT(read_back(p, 4) == std::vector<std::uint8_t>({77, 0, 0, 0}));
    OK(cuModuleUnload, module);
    FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad, &module, path);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoad, &module, nullptr);
}

SIM_TEST("driver: a library's module is not unloaded without the library", {}) {
    const Gpu gpu;
    CUlibrary library = nullptr;
    OK(cuLibraryLoadData, &library, kKernels.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    CUmodule module = nullptr;
    OK(cuLibraryGetModule, &module, library);
    FAILS(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload, module);
    CUfunction store = nullptr;
    OK(cuModuleGetFunction, &store, module, "store");
    OK(cuLibraryUnload, library);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload, module);
}

SIM_TEST("driver: occupancy counts threads, blocks and shared memory", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUfunction store = kernels["store"], bounded = kernels["bounded"];
    const auto blocks = [](CUfunction function, int threads, std::size_t shared) {
        int count = -1;
        OK(cuOccupancyMaxActiveBlocksPerMultiprocessor, &count, function, threads, shared);
        return count;
    };
    EXPECT(blocks(store, 1024, 0) == 1);  // 1024 threads of a multiprocessor
    EXPECT(blocks(store, 256, 0) == 4);
    EXPECT(blocks(store, 33, 0) == 16);        // two warps each, and 16 blocks at most
    EXPECT(blocks(store, 64, 20 << 10) == 3);  // 64 KiB
    EXPECT(blocks(bounded, 65, 0) == 0);
    int grid = 0, block = 0;
    OK(cuOccupancyMaxPotentialBlockSize, &grid, &block, store, nullptr, 0, 0);
    int multiprocessors = 0;
    OK(cuDeviceGetAttribute, &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device);
    EXPECT(block == 1024 && grid == multiprocessors);
    OK(cuOccupancyMaxPotentialBlockSize, &grid, &block, bounded, nullptr, 0, 0);
    EXPECT(block == 64 && grid == 16 * multiprocessors);
    // Shared memory by the block's size; and no more threads than asked.
    OK(
        cuOccupancyMaxPotentialBlockSize, &grid, &block, store,
        [](int threads) -> std::size_t { return static_cast<std::size_t>(threads) * 128; }, 0, 0);
    EXPECT(block * grid / multiprocessors == 512);
    OK(cuOccupancyMaxPotentialBlockSize, &grid, &block, store, nullptr, 0, 200);
    EXPECT(block <= 200 && block * grid / multiprocessors > 800);
    int count = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor, &count, store, 0, 0);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuOccupancyMaxActiveBlocksPerMultiprocessor, &count, nullptr, 32, 0);
}

}  // namespace

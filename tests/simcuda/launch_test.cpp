// Launches: parameters, shapes, concurrency and faults.
#include <cstring>

#include "tests/simcuda/kernels.h"
#include "tests/simcuda/vmm.h"

namespace {

using namespace sim;

CUdeviceptr words(std::size_t count, std::uint32_t value) {
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4 * count);
    OK(cuMemsetD32, p, value, count);
    OK(cuCtxSynchronize);  // the fill is of the legacy stream, which non-blocking streams do not wait for
    return p;
}

std::uint32_t word_at(CUdeviceptr p) {
    std::uint32_t word = 0;
    OK(cuMemcpyDtoH, &word, p, 4);
    return word;
}

CUstream stream_of(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, flags);
    return stream;
}

SIM_TEST("launch: a kernel runs over its whole grid", {}) {
    const Gpu gpu;
    const Kernels kernels;
    constexpr unsigned kCount = 100'001;
    const CUdeviceptr in = words(kCount, 41), out = words(kCount, 0);
    LAUNCH(kernels["increment"], (kCount + 255) / 256, 256, nullptr, out, in, kCount - 1);
    const auto bytes = read_back(out, 4 * kCount);
    std::vector<std::uint32_t> result(kCount);
    std::memcpy(result.data(), bytes.data(), bytes.size());
    EXPECT(std::vector<std::uint32_t>(result.begin(), result.end() - 1) ==
           std::vector<std::uint32_t>(kCount - 1, 42));
    EXPECT(result.back() == 0);
}

SIM_TEST("launch: parameters of several sizes, each given or in a buffer", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUdeviceptr out = words(2, 0);
    LAUNCH(kernels["mixed"], 1, 1, nullptr, std::uint8_t{200}, std::uint64_t{1'000'000},
           std::uint16_t{60'000}, out);
    EXPECT(word_at(out) == 1'060'200);

    struct Packed {
        std::uint8_t a;
        std::uint64_t b;
        std::uint16_t c;
        std::uint64_t out;
    } packed{1, 2, 3, out};
    std::size_t bytes = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel, kernels["mixed"], 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
    EXPECT(word_at(out) == 6);
    bytes = 16;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, kernels["mixed"], 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
          extra);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, kernels["mixed"], 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
          nullptr);
}

SIM_TEST("launch: shapes the device does not have are refused", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUdeviceptr out = words(1, 0);
    const CUfunction store = kernels["store"];
    EXPECT(launch(store, 0, 1, nullptr, out, 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(launch(store, 1, 0, nullptr, out, 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(launch(store, 1, 1025, nullptr, out, 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(launch(kernels["bounded"], 1, 65, nullptr, out) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(launch(kernels["bounded"], 1, 64, nullptr, out) == CUDA_SUCCESS);
    std::uint32_t value = 1;
    void* parameters[] = {const_cast<CUdeviceptr*>(&out), &value};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, store, 1, 1, 1, 1, 1, 1, 49153, nullptr, parameters,
          nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, store, 1, 65536, 1, 1, 1, 1, 0, nullptr, parameters,
          nullptr);
    OK(cuLaunchKernel, store, 1, 1, 1, 1, 1, 1, 49152, nullptr, parameters, nullptr);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, reinterpret_cast<CUfunction>(&value), 1, 1, 1, 1, 1, 1,
          0, nullptr, parameters, nullptr);
    FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel, store, 1000, 1, 1, 1024, 1, 1,
          0, nullptr, parameters);
    OK(cuCtxSynchronize);
}

SIM_TEST("launch: four kernels of four streams run at once beside a copy in each direction", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUdeviceptr flags = words(4, 0), out = words(4, 0);
    CUstream streams[4];
    for (unsigned i = 0; i < 4; ++i) {
        streams[i] = stream_of();
        // A chain that only ends if all run at once: each waits for the next, the last for a copy from the
        // host.
        LAUNCH(kernels["await"], 1, 1, streams[i], flags + 4 * i, i == 0 ? out : flags + 4 * (i - 1));
    }
    void *up = nullptr, *down = nullptr;
    OK(cuMemHostAlloc, &up, 4, 0);
    OK(cuMemHostAlloc, &down, 16, 0);
    *static_cast<std::uint32_t*>(up) = 77;
    const CUstream beside = stream_of(), other = stream_of();
    OK(cuMemcpyDtoHAsync, down, out, 16, other);
    OK(cuStreamSynchronize, other);
    EXPECT(*static_cast<std::uint32_t*>(down) == 0);
    OK(cuMemcpyHtoDAsync, flags + 12, up, 4, beside);
    OK(cuCtxSynchronize);
    EXPECT(word_at(out) == 77);
}

SIM_TEST("launch: a kernel that touches no memory of its own fails the context for good", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = words(1, 0);
    const CUfunction store = kernels["store"];
    OK(cuMemFree, p);
    LAUNCH(store, 1, 1, nullptr, p, 1);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc, &p, 4);
    EXPECT(launch(store, 1, 1, nullptr, p, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

SIM_TEST("launch: a kernel cannot touch host memory that is not registered", {}) {
    const Gpu gpu;
    const Kernels kernels;
    std::uint32_t word = 5;
    LAUNCH(kernels["store"], 1, 1, nullptr, &word, 1);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
    EXPECT(word == 5);
}

SIM_TEST("launch: a kernel reaches pinned, registered, managed and host-located memory", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUfunction store = kernels["store"];
    void* pinned = nullptr;
    OK(cuMemHostAlloc, &pinned, 4, 0);
    std::vector<std::uint32_t> registered(2000);
    OK(cuMemHostRegister, registered.data(), 8000, 0);
    CUdeviceptr managed = 0;
    OK(cuMemAllocManaged, &managed, 4, CU_MEM_ATTACH_GLOBAL);
    const CUdeviceptr mapped = reserve(kGranule);
    map(mapped, kGranule, create(kGranule, on_host()));
    LAUNCH(store, 1, 1, nullptr, pinned, 1);
    LAUNCH(store, 1, 1, nullptr, &registered[1999], 2);
    LAUNCH(store, 1, 1, nullptr, managed, 3);
    LAUNCH(store, 1, 1, nullptr, mapped, 4);
    OK(cuCtxSynchronize);
    EXPECT(*static_cast<std::uint32_t*>(pinned) == 1);
    EXPECT(registered[1999] == 2);
    EXPECT(*reinterpret_cast<std::uint32_t*>(managed) == 3);
    EXPECT(word_at(mapped) == 4);
    OK(cuMemHostUnregister, registered.data());
    LAUNCH(store, 1, 1, nullptr, &registered[1999], 5);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
    EXPECT(registered[1999] == 2);
}

SIM_TEST("launch: unmapping under a running kernel makes it fault", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUdeviceptr p = reserve(kGranule), out = words(1, 0);
    map(p, kGranule, create(kGranule));
    OK(cuMemsetD32, p, 0, 1);
    LAUNCH(kernels["await"], 1, 1, stream_of(), p, out);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, p);
    OK(cuMemUnmap, p, kGranule);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
}

SIM_TEST("launch: a kernel that may only read faults when it writes", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUdeviceptr p = reserve(kGranule), out = words(1, 0);
    map(p, kGranule, create(kGranule));
    OK(cuMemsetD32, p, 9, 1);
    OK(cuCtxSynchronize);
    const CUmemAccessDesc read_only = device_access(CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemSetAccess, p, kGranule, &read_only, 1);
    LAUNCH(kernels["await"], 1, 1, nullptr, p, out);
    EXPECT(word_at(out) == 9);
    LAUNCH(kernels["store"], 1, 1, nullptr, p, 1);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
}

SIM_TEST("launch: freeing waits for the kernels before it", {}) {
    const Gpu gpu;
    const Kernels kernels;
    for (int i = 0; i < 50; ++i) {
        const CUdeviceptr in = words(10'000, 1), out = words(10'000, 0);
        LAUNCH(kernels["increment"], 40, 256, stream_of(), out, in, 10'000);
        OK(cuMemFree, in);
        EXPECT(word_at(out + 4 * 9'999) == 2);
        OK(cuMemFree, out);
    }
    OK(cuCtxSynchronize);
}

SIM_TEST("launch: a kernel has a time limit if one is set", {{"SIMCUDA_KERNEL_TIMEOUT_MS", "100"}}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUdeviceptr flag = words(1, 0);
    LAUNCH(kernels["await"], 1, 1, nullptr, flag, flag);
    FAILS(CUDA_ERROR_LAUNCH_TIMEOUT, cuCtxSynchronize);
}

}  // namespace

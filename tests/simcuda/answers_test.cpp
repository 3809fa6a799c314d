// What NVIDIA's driver answers at the edges: null, empty, too much, and what it has no word for.
#include <cstring>
#include <iterator>
#include <string>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

SIM_TEST("answers: memory info of one kind alone", {}) {
    const Gpu gpu;
    std::size_t free = 0, total = 0, both_free = 0, both_total = 0;
    OK(cuMemGetInfo, &both_free, &both_total);
    OK(cuMemGetInfo, &free, nullptr);
    OK(cuMemGetInfo, nullptr, &total);
    EXPECT(free == both_free);
    EXPECT(total == both_total);
}

SIM_TEST("answers: page-locked memory is mapped, and null is no registered memory", {}) {
    const Gpu gpu;
    void* memory = nullptr;
    OK(cuMemHostAlloc, &memory, 4096, CU_MEMHOSTALLOC_PORTABLE);
    unsigned flags = 0;
    OK(cuMemHostGetFlags, &flags, memory);
    EXPECT(flags == (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister, nullptr);
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, &flags);
    OK(cuMemFreeHost, memory);
}

SIM_TEST("answers: pitched memory and fills larger than there are addresses", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    std::size_t pitch = 0;
    constexpr std::size_t kMost = SIZE_MAX;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch, &p, &pitch, kMost, 1, 4);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch, &p, &pitch, 1, kMost, 4);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch, &p, &pitch, kMost, kMost, 4);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch, &p, &pitch, std::size_t{1} << 40, 4, 4);
    OK(cuMemAllocPitch, &p, &pitch, 100, 10, 4);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8, p, pitch, 0, 100, kMost);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8Async, p, pitch, 0, 100, kMost, nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32, p, pitch, 0, 100, kMost / 2 + 1);
    OK(cuMemsetD2D8, p, pitch, 0, 100, 10);
}

SIM_TEST("answers: flags that no array has", {}) {
    const Gpu gpu;
    CUarray array = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR descriptor{16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0xffffffffu};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate, &array, &descriptor);
    descriptor.Flags = CUDA_ARRAY3D_SPARSE;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuArray3DCreate, &array, &descriptor);
}

SIM_TEST("answers: rows of an array one row high, no bytes, no array", {}) {
    const Gpu gpu;
    const std::uint8_t from[64] = {1, 2, 3};
    std::uint8_t to[64] = {};
    for (const std::size_t height : {0, 1}) {
        const CUDA_ARRAY_DESCRIPTOR descriptor{64, height, CU_AD_FORMAT_UNSIGNED_INT8, 1};
        CUarray array = nullptr;
        OK(cuArrayCreate, &array, &descriptor);
        OK(cuMemcpyHtoA, array, 0, from, 64);
        std::memset(to, 0xee, sizeof to);
        OK(cuMemcpyAtoH, to, array, 0, 64);
        EXPECT(std::memcmp(from, to, 64) == 0);
        OK(cuMemcpyHtoA, array, 0, from, 0);
        OK(cuMemcpyAtoH, to, array, 0, 0);
    }
    const CUDA_ARRAY_DESCRIPTOR descriptor{64, 2, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUarray rows = nullptr;
    OK(cuArrayCreate, &rows, &descriptor);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoH, to, rows, 0, 64);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoH, to, nullptr, 0, 64);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA, nullptr, 0, from, 64);
}

SIM_TEST("answers: more attributes of a pointer than there are", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4096);
    CUpointer_attribute attributes[64];
    unsigned value = 0;
    void* values[64];
    std::fill_n(attributes, 64, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    std::fill_n(values, 64, &value);
    OK(cuPointerGetAttributes, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, attributes, values, p);
    EXPECT(value == CU_MEMORYTYPE_DEVICE);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes, 64, attributes, values, p);
}

SIM_TEST("answers: a pool of one device, a stream of another", {{"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    CUcontext second = nullptr;
    OK(cuDevicePrimaryCtxRetain, &second, 1);
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CUmemoryPool pool = nullptr;
    OK(cuMemPoolCreate, &pool, &properties);
    std::size_t here = 0, there = 0, after = 0, total = 0;
    OK(cuMemGetInfo, &here, &total);
    OK(cuCtxSetCurrent, second);
    OK(cuMemGetInfo, &there, &total);
    OK(cuCtxSetCurrent, gpu.context);
    CUdeviceptr p = 0;
    OK(cuMemAllocFromPoolAsync, &p, 4 << 20, pool, nullptr);
    int ordinal = -1;
    OK(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    EXPECT(ordinal == 1);
    OK(cuMemGetInfo, &after, &total);
    EXPECT(after == here);
    OK(cuCtxSetCurrent, second);
    OK(cuMemGetInfo, &after, &total);
    EXPECT(after < there);
    const auto data = pattern(4 << 20, 3);
    OK(cuMemcpyHtoD, p, data.data(), data.size());
    EXPECT(read_back(p, data.size()) == data);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuMemFreeAsync, p, nullptr);
    OK(cuStreamSynchronize, nullptr);
    OK(cuCtxSetCurrent, second);
    OK(cuMemGetInfo, &after, &total);
    EXPECT(after == there);
}

constexpr const char* kConstants = R"(
.version 7.0
.target sm_75
.address_size 64
.const .align 4 .b8 few[6];
.const .align 8 .b8 many[1000];
.global .align 4 .u32 other;
.visible .entry reads() { ret; }
)";

SIM_TEST("answers: the constants of a function's module", {}) {
    const Gpu gpu;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    int bytes = 0;
    OK(cuModuleLoadData, &module, kConstants);
    OK(cuModuleGetFunction, &function, module, "reads");
    OK(cuFuncGetAttribute, &bytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, function);
    EXPECT(bytes == 1008);
    // Of a kernel that was never bound to a context.
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    OK(cuLibraryLoadData, &library, kConstants, nullptr, nullptr, 0, nullptr, nullptr, 0);
    OK(cuLibraryGetKernel, &kernel, library, "reads");
    bytes = 0;
    OK(cuKernelGetAttribute, &bytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, kernel, gpu.device);
    EXPECT(bytes == 1008);
    const Kernels kernels;
    OK(cuFuncGetAttribute, &bytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, kernels["store"]);
    EXPECT(bytes == 0);
}

SIM_TEST("answers: a cooperative launch whose blocks want too much shared memory is too large", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr out = 0;
    std::uint32_t value = 1;
    OK(cuMemAlloc, &out, 4);
    void* parameters[] = {&out, &value};
    for (const unsigned bytes : {49153u, 1u << 20}) {
        FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel, kernels["store"], 1, 1, 1,
              1, 1, 1, bytes, nullptr, parameters);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, kernels["store"], 1, 1, 1, 1, 1, 1, bytes, nullptr,
              parameters, nullptr);
    }
}

SIM_TEST("answers: a kernel for a stream of another context", {{"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr out = 0;
    OK(cuMemAlloc, &out, 4);
    CUcontext second = nullptr;
    CUstream stream = nullptr;
    OK(cuDevicePrimaryCtxRetain, &second, 1);
    OK(cuCtxSetCurrent, second);
    OK(cuStreamCreate, &stream, 0);
    OK(cuCtxSetCurrent, gpu.context);
    EXPECT(launch(kernels["store"], 1, 1, stream, out, 1) == CUDA_ERROR_INVALID_HANDLE);
}

SIM_TEST("answers: settings that there are not", {{"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUfunction store = kernels["store"];
    const auto set_banks = reinterpret_cast<CUresult (*)(int)>(symbol("cuCtxSetSharedMemConfig"));
    for (const int config : {-1, 4}) {
        FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxSetCacheConfig, static_cast<CUfunc_cache>(config));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetCacheConfig, store, static_cast<CUfunc_cache>(config));
        EXPECT(set_banks(config) == CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuCtxSetCacheConfig, CU_FUNC_CACHE_PREFER_EQUAL);
    OK(cuFuncSetCacheConfig, store, CU_FUNC_CACHE_PREFER_L1);
    EXPECT(set_banks(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) == CUDA_SUCCESS);
    for (const unsigned flags : {3, 5, 6, 7}) {
        CUcontext context = nullptr;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxSetFlags, gpu.device, flags);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxSetFlags, flags);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxCreate, &context, nullptr, flags, gpu.device);
    }
    for (const unsigned flags : {0, 1, 2, 4}) OK(cuDevicePrimaryCtxSetFlags, gpu.device, flags);
    int blocks = 0, grid = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &blocks, store, 32,
          0, 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxPotentialBlockSizeWithFlags, &grid, &blocks, store, nullptr,
          0, 0, 0xffff);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &blocks, store, 32, 0,
       CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE);
    for (const int attribute : {-1, 0, 100})
        FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetP2PAttribute, &blocks,
              static_cast<CUdevice_P2PAttribute>(attribute), 0, 1);
    char id[13] = {};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId, id, 12, gpu.device);
    OK(cuDeviceGetPCIBusId, id, 13, gpu.device);
    EXPECT(std::string(id) == "0000:01:00.0");
}

SIM_TEST("answers: empty names", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr address = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoad, &module, "");
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleGetFunction, &function, kernels.module, "");
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleGetGlobal, &address, nullptr, kernels.module, "");
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &function, kernels.module, "nothing");
}

SIM_TEST("answers: flags that no wait for a value has", {}) {
    const Gpu gpu;
    CUdeviceptr word = 0;
    OK(cuMemAlloc, &word, 4);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32, nullptr, word, 0, 0xffffffffu);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue32, nullptr, word, 0, CU_STREAM_WAIT_VALUE_FLUSH);
}

SIM_TEST("answers: there is nothing to destroy behind the object 0", {}) {
    const Gpu gpu;
    OK(cuTexObjectDestroy, 0);
    OK(cuSurfObjectDestroy, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy, 12345);
}

SIM_TEST("answers: what an error is called in words", {}) {
    constexpr std::pair<CUresult, const char*> kTexts[] = {
        {CUDA_SUCCESS, "no error"},
        {CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"},
        {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
        {CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"},
        {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
        {CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "exclusive-thread device already in use by a different thread"},
        {CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"},
        {CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"},
        {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
        {CUDA_ERROR_UNKNOWN, "unknown error"},
    };
    for (const auto& [code, wanted] : kTexts) {
        const char* text = nullptr;
        OK(cuGetErrorString, code, &text);
        EXPECT(std::string(text) == wanted);
    }
    // Each code that has a name has a text.
    for (int code = 0; code <= CUDA_ERROR_UNKNOWN; ++code) {
        const char *name = nullptr, *text = nullptr;
        const auto result = static_cast<CUresult>(code);
        EXPECT(CU(cuGetErrorName)(result, &name) == CU(cuGetErrorString)(result, &text) ||
               (name == nullptr && text != nullptr));
    }
}

void make_mipmapped_texture() {
    const Gpu gpu;
    const CUDA_ARRAY3D_DESCRIPTOR descriptor{64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    OK(cuMipmappedArrayCreate, &resource.res.mipmap.hMipmappedArray, &descriptor, 3);
    CUDA_TEXTURE_DESC sampling{};
    sampling.flags = CU_TRSF_NORMALIZED_COORDINATES;
    sampling.maxMipmapLevelClamp = 2;
    sampling.maxAnisotropy = 4;
    CUtexObject object = 0;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate, &object, &resource, &sampling, nullptr);
}

TEST_CASE("answers: a texture with anisotropy over several levels is refused with a line") {
    std::string said;
    CHECK(run({}, make_mipmapped_texture, &said) == "");
    CHECK(said ==
          "simcuda: textures with anisotropy over several mipmap levels are not simulated: "
          "CUDA_ERROR_NOT_SUPPORTED\n");
}

}  // namespace

// Memory that the program maps itself: what calls on it answer, also at odd moments.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/entry/own.h"

using namespace rig;

// Each call on memory of the program's own: some on `a`, one that would map it at `q` too.
static std::vector<std::function<CUresult()>> all_calls(const Own& a, CUdeviceptr q) {
    static CUmemGenericAllocationHandle handle = 0;
    static unsigned long long flags = 0;
    static CUmemAllocationProp asked{};
    static const CUmemAllocationProp properties = on_gpu();
    static const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return {[] { return CU(cuMemCreate)(&handle, kBuffer, &properties, 0); },
            [&a, q] { return CU(cuMemMap)(q, kBuffer, 0, a.handle(), 0); },
            [&a] { return CU(cuMemSetAccess)(a.at(), kBuffer, &access, 1); },
            [&a] { return CU(cuMemUnmap)(a.at(), kBuffer); },
            [&a] { return CU(cuMemRelease)(a.handle()); },
            [&a] { return CU(cuMemRetainAllocationHandle)(&handle, reinterpret_cast<void*>(a.at())); },
            [&a] { return CU(cuMemAddressFree)(a.at(), kBuffer); },
            [&a] { return CU(cuMemGetAccess)(&flags, &properties.location, a.at()); },
            [&a] { return CU(cuMemGetAllocationPropertiesFromHandle)(&asked, a.handle()); }};
}

BODY(own_forbidden) {
    const Gpu gpu;
    const Own a(kBuffer, 1);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (const auto& call : all_calls(a, reserve(kBuffer))) {
        OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        std::printf("%s", error_text(call()).c_str());
        CUgraph graph = nullptr;
        std::printf(", then %s\n", error_text(CU(cuStreamEndCapture)(stream, &graph)).c_str());
    }
    EXPECT(a.holds(1));
    std::printf("end\n");
}

// Has what a body prints compared with what it prints without the shim.
static void same_text_both_ways(const std::string& body, Environment environment) {
    environment["LMS_LOG"] = "off";
    const std::string with = run(body, Driver::Simulated, environment).failures;
    environment["LD_PRELOAD"] = environment["ENTRY_SIMULATED"] =
        std::string(std::getenv("BUILD") ? std::getenv("BUILD") : "build") + "/sim/libcuda.so.1";
    CHECK(with == run(body, Driver::Simulated, environment).failures);
    CHECK(with.ends_with("end\n"));
}

TEST_CASE("own mappings: what a capture forbids is forbidden as without the shim") {
    same_text_both_ways("own_forbidden", {});
}

// Ends without what would be refused again.
[[noreturn]] static void end() {
    std::printf("end\n");
    std::fflush(stdout);
    std::_Exit(0);
}

BODY(own_after_fault) {
    const Gpu gpu;
    const Own a(kBuffer, 1);
    const CUdeviceptr q = reserve(kBuffer);
    unsigned flags = 0;
    std::printf("%s\n", error_text(CU(cuCtxGetFlags)(&flags)).c_str());
    for (const auto& call : all_calls(a, q)) std::printf("%s\n", error_text(call()).c_str());
    end();
}

TEST_CASE("own mappings: after a kernel's fault every call answers as without the shim") {
    same_text_both_ways("own_after_fault", {{"SIMCUDA_FAIL", "cuCtxGetFlags:1=700"}});
}

BODY(own_without_context) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = on_gpu();
    CUdeviceptr p = 0;
    const auto create_and_map = [&] {
        std::printf("create: %s\n", error_text(CU(cuMemCreate)(&handle, kBuffer, &properties, 0)).c_str());
        std::printf("reserve: %s\n", error_text(CU(cuMemAddressReserve)(&p, kBuffer, 0, 0, 0)).c_str());
        std::printf("map: %s\n", error_text(CU(cuMemMap)(p, kBuffer, 0, handle, 0)).c_str());
        const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        std::printf("access: %s\n", error_text(CU(cuMemSetAccess)(p, kBuffer, &access, 1)).c_str());
    };
    create_and_map();
    OK(cuInit, 0);
    create_and_map();
    const Gpu gpu;
    write(p, kBuffer, 1);
    EXPECT(reads(p, kBuffer, 1));
    // With a context, but none that is current.
    OK(cuCtxSetCurrent, nullptr);
    create_and_map();
    std::printf("unmap: %s\n", error_text(CU(cuMemUnmap)(p, kBuffer)).c_str());
    std::printf("release: %s\n", error_text(CU(cuMemRelease)(handle)).c_str());
    end();
}

TEST_CASE(
    "own mappings: without a context, or before the driver is initialised, all is as without the shim") {
    same_text_both_ways("own_without_context", {});
}

// What is wrong with a call is told by the first that the driver finds.
BODY(own_wrong_twice) {
    const Gpu gpu;
    const Own a(kBuffer, 1);
    const auto tell = [](CUresult result) { std::printf("%s\n", error_text(result).c_str()); };
    CUmemGenericAllocationHandle handle = 0;
    for (const std::size_t bytes : {std::size_t{0}, kGranule / 2, kBuffer, std::size_t{1} << 40}) {
        for (const int device : {0, 7}) {
            for (const unsigned long long flags : {0, 1}) {
                CUmemAllocationProp properties = on_gpu(device);
                tell(CU(cuMemCreate)(&handle, bytes, &properties, flags));
                properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
                tell(CU(cuMemCreate)(&handle, bytes, &properties, flags));
                properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
                tell(CU(cuMemCreate)(&handle, bytes, &properties, flags));
            }
        }
    }
    const CUmemAllocationProp properties = on_gpu();
    tell(CU(cuMemCreate)(nullptr, kBuffer, &properties, 0));
    tell(CU(cuMemCreate)(&handle, kBuffer, nullptr, 0));
    tell(CU(cuMemRelease)(a.handle() + 12345));
    tell(CU(cuMemMap)(a.at(), kBuffer, 0, a.handle() + 12345, 0));
    tell(CU(cuMemGetAllocationPropertiesFromHandle)(nullptr, a.handle()));
    tell(CU(cuMemRetainAllocationHandle)(nullptr, reinterpret_cast<void*>(a.at())));
    unsigned long long flags = 0;
    tell(CU(cuMemGetAccess)(nullptr, &properties.location, a.at()));
    tell(CU(cuMemGetAccess)(&flags, nullptr, a.at()));
    // One that is refused changes nothing for the others.
    const CUmemAccessDesc access[] = {{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READ},
                                      {{CU_MEM_LOCATION_TYPE_DEVICE, 7}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
    tell(CU(cuMemSetAccess)(a.at(), kBuffer, access, 2));
    tell(CU(cuMemSetAccess)(a.at(), kBuffer, access, 0));
    tell(CU(cuMemSetAccess)(a.at(), kBuffer, nullptr, 1));
    tell(CU(cuMemSetAccess)(a.at(), kBuffer / 2, access, 1));
    tell(CU(cuMemSetAccess)(a.at() + kBuffer / 2, kBuffer / 2, access, 1));
    OK(cuMemGetAccess, &flags, &properties.location, a.at());
    std::printf("%llu\n", flags);
    EXPECT(a.holds(1));
    std::printf("end\n");
}

TEST_CASE("own mappings: a call that is wrong in several ways answers as without the shim") {
    same_text_both_ways("own_wrong_twice", {});
}

// Shared as memory of cuMemAlloc and of pools is.
BODY(own_not_for_processes) {
    const Gpu gpu;
    const Own a(kBuffer, 1);
    CUipcMemHandle handle{};
    CUmemPoolPtrExportData data{};
    std::printf("%s\n", error_text(CU(cuIpcGetMemHandle)(&handle, a.at())).c_str());
    std::printf("%s\n", error_text(CU(cuMemPoolExportPointer)(&data, a.at())).c_str());
    EXPECT(a.holds(1));
    std::printf("end\n");
}

TEST_CASE(
    "own mappings: what cannot be shared with other processes by its address is refused as without the "
    "shim") {
    same_text_both_ways("own_not_for_processes", {});
}

// The attribute is no call that a capture forbids.
BODY(own_made_synchronous_in_capture) {
    const Gpu gpu;
    const Own a(kBuffer, 1);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    const unsigned on = 1;
    std::printf("%s, ",
                error_text(CU(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a.at())).c_str());
    CUgraph graph = nullptr;
    std::printf("then %s\n", error_text(CU(cuStreamEndCapture)(stream, &graph)).c_str());
    EXPECT(a.holds(1));
    std::printf("end\n");
}

TEST_CASE("own mappings: memory is made synchronous while work is captured, as without the shim") {
    same_text_both_ways("own_made_synchronous_in_capture", {});
}

// Of a GPU that copies in 20 MB a second.

BODY(own_unfinished) {
    const Gpu gpu;
    void* host = nullptr;
    OK(cuMemHostAlloc, &host, kBuffer, 0);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const auto handle = create(kBuffer);
    const CUdeviceptr p = reserve(kBuffer);
    map(p, kBuffer, handle);
    OK(cuMemcpyHtoDAsync_v2, p, host, kBuffer, stream);
    std::printf("unmap: %s\n", error_text(CU(cuMemUnmap)(p, kBuffer)).c_str());
    std::printf("stream: %s\n", error_text(CU(cuStreamSynchronize)(stream)).c_str());
    std::printf("release: %s\n", error_text(CU(cuMemRelease)(handle)).c_str());
    std::printf("free: %s\n", error_text(CU(cuMemAddressFree)(p, kBuffer)).c_str());
    end();
}

TEST_CASE("own mappings: unmapping under unfinished work does what it does without the shim") {
    for (const char* drains : {"0", "1"}) {
        CAPTURE(drains);
        same_text_both_ways("own_unfinished",
                            {{"SIMCUDA_H2D_GBPS", "0.02"}, {"SIMCUDA_UNMAP_DRAINS", drains}});
    }
}

FAMILY_TEST("own mappings: threads make, use and give back memory of their own beside one another") {
    const Gpu gpu;
    const CUfunction add = kernel("add");
    const auto work = [&](std::uint32_t thread) {
        OK(cuCtxSetCurrent, gpu.context);
        CUstream stream = nullptr;
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        for (std::uint32_t round = 0; round < 25; ++round) {
            const std::uint32_t seed = 100 * thread + round;
            const Own a(kBuffer, seed);
            const Own b(kBuffer);
            const Buffer c(kBuffer);
            const CUdeviceptr way[] = {a.at(), b.at(), c.at()};
            for (int i = 0; i < 2; ++i) {
                CUdeviceptr to = way[i + 1];
                CUdeviceptr from = way[i];
                std::uint32_t zero = 0;
                std::uint32_t words = kWords;
                void* parameters[] = {&to, &from, &zero, &words};
                OK(cuLaunchKernel, add, kWords / 256, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
            }
            OK(cuStreamSynchronize, stream);
            EXPECT(c.holds(seed));
            EXPECT(b.holds(seed));
            EXPECT(a.holds(seed));
        }
        OK(cuStreamDestroy_v2, stream);
    };
    const Own kept(3 * kBuffer, 7);
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < 3; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
    EXPECT(kept.holds(7));
}

FAMILY_TEST("own mappings: what is out answers as what is there", "app-vmm-out") {
    const Gpu gpu;
    Crowd crowd;
    const Own a(kBuffer, 1);
    const auto handle = create(kBuffer);
    for (const bool out : {true, false}) {
        if (out) {
            evict(crowd, a.at(), kBuffer);
        } else {
            bring_in(a.at(), kBuffer, nullptr);
            OK(cuCtxSynchronize);
        }
        EXPECT(on_device(a.at(), kBuffer) == !out);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, a.at(), kBuffer);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, a.at(), kBuffer, 0, handle, 0);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, a.at());
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync, a.at(), nullptr);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, a.at(), kBuffer / 2);
        CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 5}, CU_MEM_ACCESS_FLAGS_PROT_READ};
        FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess, a.at(), kBuffer, &access, 1);
        // Memory on the GPU is not the CPU's, wherever it is now.
        access.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
        const CUresult host = CU(cuMemSetAccess)(a.at(), kBuffer, &access, 1);
        EXPECT(host == CUDA_ERROR_INVALID_VALUE || host == CUDA_ERROR_NOT_SUPPORTED);
        unsigned long long flags = 0;
        CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
        OK(cuMemGetAccess, &flags, &location, a.at() + 5);
        EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        location.id = 5;
        FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemGetAccess, &flags, &location, a.at());
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        OK(cuMemGetAddressRange_v2, &base, &bytes, a.at() + 5);
        EXPECT(base == a.at() && bytes == kBuffer);
        CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                       CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
        unsigned type = 0;
        void* on_host = &type;
        std::size_t size = 0;
        void* answers[] = {&type, &on_host, &size};
        OK(cuPointerGetAttributes, 3, which, answers, a.at() + 5);
        EXPECT(type == CU_MEMORYTYPE_DEVICE && on_host == nullptr && size == kBuffer);
    }
    OK(cuMemRelease, handle);
    EXPECT(a.holds(1));
}

FAMILY_TEST("own mappings: what is to be read alone is not written, wherever it is") {
    const Gpu gpu;
    Crowd crowd;
    const Own a(kBuffer, 1);
    let_in(a.at(), kBuffer, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    evict(crowd, a.at(), kBuffer);
    EXPECT(a.holds(1));
    evict(crowd, a.at(), kBuffer);
    // The simulated GPU takes it for a fault, after which nothing works any more.
    const auto data = pattern(kBuffer, 2);
    const CUresult result = CU(cuMemcpyHtoD_v2)(a.at(), data.data(), kBuffer);
    EXPECT(result != CUDA_SUCCESS || CU(cuCtxSynchronize)() != CUDA_SUCCESS);
    std::fflush(stdout);
    std::_Exit(0);
}

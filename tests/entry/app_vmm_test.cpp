// Memory that the app maps itself (frameworks' allocators, their expandable segments).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/entry/rig.h"

using namespace rig;

namespace {

// A range of addresses that grows and shrinks by one granule handle at a time.
class Segment {
  public:
    explicit Segment(std::size_t most) : most_(most) { OK(cuMemAddressReserve, &begin_, most, 0, 0, 0); }
    ~Segment() {
        while (!handles_.empty()) shrink();
        OK(cuMemAddressFree, begin_, most_);
    }
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    bool grow() {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
        CUmemGenericAllocationHandle handle = 0;
        if (CU(cuMemCreate)(&handle, kBuffer, &properties, 0) != CUDA_SUCCESS) return false;
        OK(cuMemMap, at(handles_.size()), kBuffer, 0, handle, 0);
        const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        OK(cuMemSetAccess, at(handles_.size()), kBuffer, &access, 1);
        handles_.push_back(handle);
        return true;
    }
    void shrink() {
        OK(cuMemUnmap, at(handles_.size() - 1), kBuffer);
        OK(cuMemRelease, handles_.back());
        handles_.pop_back();
    }
    CUdeviceptr at(std::size_t piece) const { return begin_ + piece * kBuffer; }
    std::size_t pieces() const { return handles_.size(); }

  private:
    CUdeviceptr begin_ = 0;
    std::size_t most_;
    std::vector<CUmemGenericAllocationHandle> handles_;
};

void fill(CUdeviceptr address, std::uint32_t seed) {
    OK(cuMemcpyHtoD_v2, address, pattern(kBuffer, seed).data(), kBuffer);
}

bool holds(CUdeviceptr address, std::uint32_t seed) {
    std::vector<std::uint8_t> data(kBuffer);
    OK(cuMemcpyDtoH_v2, data.data(), address, kBuffer);
    return data == pattern(kBuffer, seed);
}

}  // namespace

FAMILY_TEST("own mappings: a segment grows and shrinks under pressure, and managed memory makes room",
            "own-mappings-grow") {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 6; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    Segment segment(8 * kMiB);
    for (std::uint32_t round = 0; round < 3; ++round) {
        for (std::uint32_t i = 0; i < 5; ++i) {
            EXPECT(segment.grow());
            fill(segment.at(i), 100 + i);
        }
        // Kernels between both kinds.
        const std::uint32_t one = 1;
        const std::uint32_t minus_one = ~0u;
        const auto words = static_cast<std::uint32_t>(kBuffer / 4);
        for (std::uint32_t i = 0; i < 5; ++i) {
            const CUdeviceptr to = buffers[i]->at();
            const CUdeviceptr from = segment.at(i);
            const std::uint32_t zero = 0;
            EXPECT(launch("add", words, nullptr, to, from, zero, words) == CUDA_SUCCESS);
            EXPECT(launch("add", words, nullptr, from, from, one, words) == CUDA_SUCCESS);
            EXPECT(launch("add", words, nullptr, from, from, minus_one, words) == CUDA_SUCCESS);
        }
        for (std::uint32_t i = 0; i < 5; ++i) {
            EXPECT(buffers[i]->holds(100 + i));
            EXPECT(holds(segment.at(i), 100 + i));
            buffers[i]->fill(i);
        }
        EXPECT(buffers[5]->holds(5));
        while (segment.pieces() > round) segment.shrink();
    }
    for (std::uint32_t i = 0; i < 6; ++i) EXPECT(buffers[i]->holds(i));
}

FAMILY_TEST("own mappings: managed addresses are not the app's to map, unmap or free",
            "own-mappings-refused") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = access.location;
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate, &handle, kGranule, &properties, 0);
    CUmemGenericAllocationHandle retained = 0;
    // As for memory of cuMemAlloc; each would take away what the shim relies on.
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, a.at(), kGranule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess, a.at(), kGranule, &access, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, a.at(), kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, a.at() + kBuffer, kGranule, 0, handle, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle, &retained, reinterpret_cast<void*>(a.at()));
    OK(cuMemRelease, handle);
    EXPECT(a.holds(1));
    const std::uint32_t one = 1;
    const auto words = static_cast<std::uint32_t>(kBuffer / 4);
    const CUdeviceptr at = a.at();
    EXPECT(launch("add", words, nullptr, at, at, one, words) == CUDA_SUCCESS);
    OK(cuCtxSynchronize);
}

// ---- handles and mappings one by one

namespace {

CUmemAllocationProp on_gpu(int device = 0) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return properties;
}

CUmemGenericAllocationHandle create(std::size_t bytes, const CUmemAllocationProp& properties = on_gpu()) {
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate, &handle, bytes, &properties, 0);
    return handle;
}

CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve, &address, bytes, 0, 0, 0);
    return address;
}

void let_in(CUdeviceptr address, std::size_t bytes, int device = 0,
            CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    OK(cuMemSetAccess, address, bytes, &access, 1);
}

void map(CUdeviceptr address, std::size_t bytes, CUmemGenericAllocationHandle handle) {
    OK(cuMemMap, address, bytes, 0, handle, 0);
    let_in(address, bytes);
}

void write(CUdeviceptr address, std::size_t bytes, std::uint32_t seed) {
    OK(cuMemcpyHtoD_v2, address, pattern(bytes, seed).data(), bytes);
    OK(cuStreamSynchronize, nullptr);
}

bool reads(CUdeviceptr address, std::size_t bytes, std::uint32_t seed) {
    std::vector<std::uint8_t> data(bytes);
    OK(cuMemcpyDtoH_v2, data.data(), address, bytes);
    return data == pattern(bytes, seed);
}

// Memory as a framework's allocator has it: one handle, mapped once, at addresses of its own.
class Own {
  public:
    explicit Own(std::size_t bytes) : bytes_(bytes), handle_(create(bytes)), address_(reserve(bytes)) {
        map(address_, bytes_, handle_);
    }
    Own(std::size_t bytes, std::uint32_t seed) : Own(bytes) { write(address_, bytes_, seed); }
    ~Own() {
        OK(cuMemUnmap, address_, bytes_);
        OK(cuMemRelease, handle_);
        OK(cuMemAddressFree, address_, bytes_);
    }
    Own(const Own&) = delete;
    Own& operator=(const Own&) = delete;
    CUdeviceptr at() const { return address_; }
    CUmemGenericAllocationHandle handle() const { return handle_; }
    bool holds(std::uint32_t seed) const { return reads(address_, bytes_, seed); }

  private:
    std::size_t bytes_;
    CUmemGenericAllocationHandle handle_;
    CUdeviceptr address_;
};

std::size_t free_on_gpu() {
    std::size_t free = 0;
    std::size_t total = 0;
    SIM(cuMemGetInfo_v2)(&free, &total);
    return free;
}

void evict(Crowd& crowd, CUdeviceptr address, std::size_t bytes) {
    for (int i = 0; i < 4 && !off_device(address, bytes); ++i) crowd.press();
    EXPECT(off_device(address, bytes));
}

constexpr auto kWords = static_cast<std::uint32_t>(kBuffer / 4);

void copy_by_kernel(CUdeviceptr to, CUdeviceptr from, std::uint32_t words = kWords) {
    const std::uint32_t zero = 0;
    EXPECT(launch("add", words, nullptr, to, from, zero, words) == CUDA_SUCCESS);
}

}  // namespace

FAMILY_TEST("own mappings: twice what the GPU has, used by copies, sets and kernels", "app-vmm-twice") {
    const Gpu gpu;
    std::vector<std::unique_ptr<Own>> all;
    for (std::uint32_t i = 0; i < 16; ++i) all.push_back(std::make_unique<Own>(kBuffer, i));
    for (std::uint32_t i = 0; i < 16; ++i) EXPECT(all[i]->holds(i));
    for (std::uint32_t i = 0; i + 1 < 16; i += 2) copy_by_kernel(all[i]->at(), all[i + 1]->at());
    for (std::uint32_t i = 0; i < 16; ++i) EXPECT(all[i]->holds(i | 1));
    for (std::uint32_t i = 0; i < 16; ++i) {
        OK(cuMemsetD8_v2, all[i]->at() + 100, static_cast<unsigned char>(i), kBuffer - 100);
        OK(cuMemcpyDtoD_v2, all[i]->at(), all[(i + 5) % 16]->at(), 100);
    }
    for (std::uint32_t i = 0; i < 16; ++i) {
        std::vector<std::uint8_t> data(kBuffer);
        OK(cuMemcpyDtoH_v2, data.data(), all[i]->at(), kBuffer);
        EXPECT(std::all_of(data.begin() + 100, data.end(), [&](std::uint8_t byte) { return byte == i; }));
    }
}

FAMILY_TEST("own mappings: one handle of more than the GPU has") {
    const Gpu gpu;
    const Own large(6 * kMiB, 1);
    EXPECT(large.holds(1));
    OK(cuMemcpyDtoD_v2, large.at(), large.at() + 3 * kMiB, 3 * kMiB);
    std::vector<std::uint8_t> data(6 * kMiB);
    OK(cuMemcpyDtoH_v2, data.data(), large.at(), data.size());
    const auto expected = pattern(6 * kMiB, 1);
    EXPECT(std::equal(data.begin(), data.begin() + 3 * kMiB, expected.begin() + 3 * kMiB));
    EXPECT(std::equal(data.begin() + 3 * kMiB, data.end(), expected.begin() + 3 * kMiB));
}

FAMILY_TEST(
    "own mappings: a handle that is not mapped takes no memory, and none is promised beyond what there is") {
    const Gpu gpu;
    const Own first(kBuffer, 1);
    const std::size_t before = free_on_gpu();
    std::vector<CUmemGenericAllocationHandle> handles;
    for (int i = 0; i < 8; ++i) handles.push_back(create(kMiB));
    EXPECT(free_on_gpu() == before);
    std::size_t free = 0;
    std::size_t total = 0;
    OK(cuMemGetInfo_v2, &free, &total);
    EXPECT(free == 0);
    for (const auto handle : handles) OK(cuMemRelease, handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease, handles[0]);
    EXPECT(first.holds(1));
}

BODY(own_host_limit) {
    const Gpu gpu;
    const Own first(kBuffer, 1);
    std::vector<CUmemGenericAllocationHandle> handles;
    const CUmemAllocationProp properties = on_gpu();
    CUmemGenericAllocationHandle handle = 7;
    CUresult result = CUDA_SUCCESS;
    while ((result = CU(cuMemCreate)(&handle, kBuffer, &properties, 0)) == CUDA_SUCCESS)
        handles.push_back(handle);
    EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(handles.size() > 5 && handles.size() < 12);
    // What was promised is there, and what is given back can be had again.
    const std::size_t all = handles.size() * kBuffer;
    const CUdeviceptr address = reserve(all);
    for (std::uint32_t i = 0; i < handles.size(); ++i) {
        map(address + i * kBuffer, kBuffer, handles[i]);
        write(address + i * kBuffer, kBuffer, i);
    }
    for (std::uint32_t i = 0; i < handles.size(); ++i) EXPECT(reads(address + i * kBuffer, kBuffer, i));
    OK(cuMemUnmap, address, all);
    OK(cuMemRelease, handles[0]);
    EXPECT(CU(cuMemCreate)(&handle, kBuffer, &properties, 0) == CUDA_SUCCESS);
    EXPECT(first.holds(1));
}

TEST_CASE("own mappings: handles beyond the GPU and LMS_HOST_LIMIT together are refused, none below") {
    run_both("own_host_limit", Driver::Simulated, {{"LMS_HOST_LIMIT", "2M"}});
}

FAMILY_TEST(
    "own mappings: contents are there until the last mapping and reference are gone, wherever they are",
    "app-vmm-contents") {
    const Gpu gpu;
    Crowd crowd;
    const CUdeviceptr p = reserve(kBuffer);
    const CUdeviceptr q = reserve(kBuffer);
    const auto handle = create(kBuffer);
    for (std::uint32_t round = 0; round < 4; ++round) {
        const CUdeviceptr at = round % 2 ? p : q;
        map(at, kBuffer, handle);
        if (round > 0) EXPECT(reads(at, kBuffer, round - 1));
        write(at, kBuffer, round);
        if (round < 2) evict(crowd, at, kBuffer);
        OK(cuMemUnmap, at, kBuffer);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2, at, 0, kBuffer);
        crowd.press();
    }
    // Released, it lives by its mapping, from which it can be had back.
    map(p, kBuffer, handle);
    OK(cuMemRelease, handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, q, kBuffer, 0, handle, 0);
    crowd.press();
    CUmemGenericAllocationHandle again = 0;
    OK(cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(p + kBuffer - 1));
    EXPECT(again == handle);
    CUmemAllocationProp properties{};
    OK(cuMemGetAllocationPropertiesFromHandle, &properties, again);
    EXPECT(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.location.id == 0);
    OK(cuMemUnmap, p, kBuffer);
    map(q, kBuffer, again);
    EXPECT(reads(q, kBuffer, 3));
    OK(cuMemRelease, again);
    OK(cuMemUnmap, q, kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(q));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle, &properties, handle);
}

FAMILY_TEST("own mappings: several mappings of one handle are one memory, and move together") {
    const Gpu gpu;
    Crowd crowd;
    const CUdeviceptr p = reserve(3 * kBuffer);
    const auto handle = create(kBuffer);
    map(p, kBuffer, handle);
    write(p, kBuffer, 1);
    evict(crowd, p, kBuffer);
    map(p + kBuffer, kBuffer, handle);  // while it is out
    EXPECT(reads(p + kBuffer, kBuffer, 1));
    const Buffer a(kBuffer, 2);
    copy_by_kernel(p + kBuffer, a.at());
    OK(cuMemMap, p + 2 * kBuffer, kBuffer, 0, handle, 0);  // while it is there
    let_in(p + 2 * kBuffer, kBuffer, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuCtxSynchronize);
    for (int i = 0; i < 3; ++i) {
        EXPECT(on_device(p + i * kBuffer, kBuffer));
        EXPECT(reads(p + i * kBuffer, kBuffer, 2));
    }
    evict(crowd, p, 3 * kBuffer);
    copy_by_kernel(a.at(), p + 2 * kBuffer);
    EXPECT(a.holds(2));
    EXPECT(on_device(p, kBuffer));
    // Taken away one after the other; what is left goes on.
    OK(cuMemUnmap, p, kBuffer);
    evict(crowd, p + kBuffer, 2 * kBuffer);
    EXPECT(reads(p + 2 * kBuffer, kBuffer, 2));
    OK(cuMemUnmap, p + kBuffer, 2 * kBuffer);
    OK(cuMemRelease, handle);
}

FAMILY_TEST(
    "own mappings: an array that lies on many handles is there whole for a kernel that is given its "
    "beginning") {
    const Gpu gpu;
    Crowd crowd;
    constexpr std::size_t kPieces = 4;
    const CUdeviceptr p = reserve(2 * kBuffer);
    const std::size_t piece = kBuffer / kPieces;
    std::vector<CUmemGenericAllocationHandle> handles;
    for (std::size_t i = 0; i < kPieces; ++i) {
        handles.push_back(create(piece));
        OK(cuMemMap, p + i * piece, piece, 0, handles.back(), 0);
    }
    let_in(p, kBuffer);
    const Buffer a(kBuffer, 5);
    for (int round = 0; round < 3; ++round) {
        write(p, kBuffer, 7);
        evict(crowd, p, kBuffer);
        copy_by_kernel(p, a.at());
        OK(cuCtxSynchronize);
        EXPECT(on_device(p, kBuffer));
        EXPECT(reads(p, kBuffer, 5));
    }
    // Also in a graph, by its node.
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    OK(cuGraphCreate, &graph, 0);
    CUDA_KERNEL_NODE_PARAMS launch{};
    CUdeviceptr to = a.at();
    CUdeviceptr from = p;
    std::uint32_t zero = 0;
    std::uint32_t words = kWords;
    void* parameters[] = {&to, &from, &zero, &words};
    launch.func = kernel("add");
    launch.gridDimX = kWords / 256;
    launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
    launch.blockDimX = 256;
    launch.kernelParams = parameters;
    OK(cuGraphAddKernelNode_v2, &node, graph, nullptr, 0, &launch);
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    write(p, kBuffer, 9);
    evict(crowd, p, kBuffer);
    OK(cuGraphLaunch, exec, nullptr);
    EXPECT(a.holds(9));
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    OK(cuMemUnmap, p, kBuffer);
    for (const auto handle : handles) OK(cuMemRelease, handle);
}

FAMILY_TEST("own mappings: what a graph's copies work on stays on the GPU") {
    const Gpu gpu;
    Crowd crowd;
    const Own a(kBuffer, 1);
    const Own b(kBuffer, 2);
    evict(crowd, a.at(), kBuffer);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemcpyDtoDAsync_v2, b.at(), a.at(), kBuffer, stream);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    crowd.press();
    EXPECT(on_device(a.at(), kBuffer));
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(b.holds(1));
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    evict(crowd, a.at(), kBuffer);
}

BODY(own_forbidden) {
    const Gpu gpu;
    const Own a(kBuffer, 1);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const CUmemAllocationProp properties = on_gpu();
    const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUdeviceptr q = reserve(kBuffer);
    CUmemGenericAllocationHandle handle = 0;
    unsigned long long flags = 0;
    CUmemAllocationProp asked{};
    const std::vector<std::function<CUresult()>> calls = {
        [&] { return CU(cuMemCreate)(&handle, kBuffer, &properties, 0); },
        [&] { return CU(cuMemMap)(q, kBuffer, 0, a.handle(), 0); },
        [&] { return CU(cuMemSetAccess)(a.at(), kBuffer, &access, 1); },
        [&] { return CU(cuMemUnmap)(a.at(), kBuffer); },
        [&] { return CU(cuMemRelease)(a.handle()); },
        [&] { return CU(cuMemRetainAllocationHandle)(&handle, reinterpret_cast<void*>(a.at())); },
        [&] { return CU(cuMemAddressFree)(a.at(), kBuffer); },
        [&] { return CU(cuMemGetAccess)(&flags, &properties.location, a.at()); },
        [&] { return CU(cuMemGetAllocationPropertiesFromHandle)(&asked, a.handle()); }};
    for (const auto& call : calls) {
        OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        std::printf("%s", error_text(call()).c_str());
        CUgraph graph = nullptr;
        std::printf(", then %s\n", error_text(CU(cuStreamEndCapture)(stream, &graph)).c_str());
    }
    EXPECT(a.holds(1));
    std::printf("end\n");
}

// Has what a body prints compared with what it prints without the shim.
static void same_both_ways(const std::string& body, Environment environment) {
    environment["LMS_LOG"] = "off";
    const std::string with = run(body, Driver::Simulated, environment).failures;
    environment["LD_PRELOAD"] = environment["FAMILIES_SIMULATED"] =
        std::string(std::getenv("BUILD") ? std::getenv("BUILD") : "build") + "/sim/libcuda.so.1";
    CHECK(with == run(body, Driver::Simulated, environment).failures);
    CHECK(with.ends_with("end\n"));
}

TEST_CASE("own mappings: what a capture forbids is forbidden as without the shim") {
    same_both_ways("own_forbidden", {});
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
    std::printf("end\n");
    std::fflush(stdout);
    std::_Exit(0);
}

TEST_CASE("own mappings: unmapping under unfinished work does what it does without the shim") {
    for (const char* drains : {"0", "1"}) {
        CAPTURE(drains);
        same_both_ways("own_unfinished", {{"SIMCUDA_H2D_GBPS", "0.02"}, {"SIMCUDA_UNMAP_DRAINS", drains}});
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

BODY(own_peers) {
    const Gpu gpu;
    Crowd crowd;
    const Own a(kBuffer, 1);
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    std::vector<std::uint8_t> data(kBuffer);
    for (int round = 0; round < 2; ++round) {
        evict(crowd, a.at(), kBuffer);
        OK(cuCtxSetCurrent, other);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2, a.at(), 3, kBuffer);
        let_in(a.at(), kBuffer, 1);
        unsigned long long flags = 0;
        const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 1};
        OK(cuMemGetAccess, &flags, &location, a.at());
        EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        OK(cuMemsetD8_v2, a.at(), 3, kBuffer);
        OK(cuCtxSynchronize);
        OK(cuCtxSetCurrent, gpu.context);
        evict(crowd, a.at(), kBuffer);
        OK(cuCtxSetCurrent, other);
        OK(cuMemcpyDtoH_v2, data.data(), a.at(), kBuffer);
        EXPECT(data == std::vector<std::uint8_t>(kBuffer, 3));
        let_in(a.at(), kBuffer, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        OK(cuMemGetAccess, &flags, &location, a.at());
        EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
        OK(cuCtxSetCurrent, gpu.context);
        EXPECT(off_device(a.at(), kBuffer) || on_device(a.at(), kBuffer));
        OK(cuMemsetD8_v2, a.at(), 4, kBuffer);
        OK(cuCtxSynchronize);
    }
}

TEST_CASE("own mappings: another GPU reaches what it is let into, wherever that is, and nothing else") {
    run_both("own_peers", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

FAMILY_TEST(
    "own mappings: an exported handle is the driver's from then on, with all it held and is mapped at",
    "app-vmm-exported") {
    const Gpu gpu;
    Crowd crowd;
    CUmemAllocationProp properties = on_gpu();
    const Own plain(kBuffer, 4);
    int file = -1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle, &file, plain.handle(),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    evict(crowd, plain.at(), kBuffer);  // managed still
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const auto handle = create(kBuffer, properties);
    const CUdeviceptr p = reserve(3 * kBuffer);
    map(p, kBuffer, handle);
    map(p + kBuffer, kBuffer, handle);
    write(p, kBuffer, 1);
    evict(crowd, p, kBuffer);
    OK(cuMemExportToShareableHandle, &file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    CUmemGenericAllocationHandle imported = 0;
    OK(cuMemImportFromShareableHandle, &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    map(p + 2 * kBuffer, kBuffer, imported);
    for (int i = 0; i < 3; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, 1));
    // What one writes the others read, and it stays where it is.
    write(p + 2 * kBuffer, kBuffer, 2);
    crowd.press();
    EXPECT(on_device(p, 3 * kBuffer));
    for (int i = 0; i < 3; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, 2));
    CUmemGenericAllocationHandle again = 0;
    OK(cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(p + kBuffer));
    EXPECT(again == handle);
    OK(cuMemRelease, again);
    OK(cuMemGetAllocationPropertiesFromHandle, &properties, handle);
    EXPECT(properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cuMemUnmap, p, 2 * kBuffer);
    map(p, kBuffer, handle);
    EXPECT(reads(p, kBuffer, 2));
    OK(cuMemRelease, handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease, handle);
    const std::size_t before = free_on_gpu();
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemUnmap, p + 2 * kBuffer, kBuffer);
    OK(cuMemRelease, imported);
    EXPECT(free_on_gpu() >= before);
    EXPECT(plain.holds(4));
}

OVERLAY_TEST("own mappings: what network cards are given, or made synchronous, is the driver's from then on",
             "app-vmm-network") {
    const Gpu gpu;
    Crowd crowd;
    const unsigned on = 1;
    int descriptor = -1;
    const std::function<void(CUdeviceptr)> gives[] = {
        [&](CUdeviceptr p) {
            OK(cuMemGetHandleForAddressRange, &descriptor, p, kBuffer, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
               0);
        },
        [&](CUdeviceptr p) { OK(cuMulticastBindAddr, 1, 0, p, kBuffer, 0); },
        [&](CUdeviceptr p) { OK(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + 5); }};
    std::uint32_t seed = 1;
    for (const auto& give : gives) {
        const Own a(kBuffer, seed);
        evict(crowd, a.at(), kBuffer);
        give(a.at());
        EXPECT(on_device(a.at(), kBuffer));
        crowd.press();
        EXPECT(on_device(a.at(), kBuffer));
        EXPECT(a.holds(seed++));
    }
    // By its handle.
    const Own a(kBuffer, 9);
    evict(crowd, a.at(), kBuffer);
    OK(cuMulticastBindMem, 1, 0, a.handle(), 0, kBuffer, 0);
    crowd.press();
    EXPECT(on_device(a.at(), kBuffer));
    EXPECT(a.holds(9));
    // No tile pool is.
    CUarrayMapInfo info{};
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandle.memHandle = a.handle();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync, &info, 1, nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync_ptsz, &info, 1, nullptr);
}

FAMILY_TEST("own mappings: handles of other kinds are the driver's, which is made room for") {
    const Gpu gpu;
    Crowd crowd;
    crowd.press();
    CUmemAllocationProp properties = on_gpu();
    properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
    const auto handle = create(kBuffer, properties);
    const CUdeviceptr p = reserve(kBuffer);
    map(p, kBuffer, handle);
    write(p, kBuffer, 1);
    crowd.press();
    EXPECT(on_device(p, kBuffer));
    EXPECT(reads(p, kBuffer, 1));
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemRelease, handle);
    OK(cuMemAddressFree, p, kBuffer);
}

BODY(own_contexts) {
    OK(cuInit, 0);
    CUcontext context = nullptr;
    OK(cuCtxCreate_v2, &context, 0, 0);
    const CUdeviceptr p = reserve(12 * kBuffer);
    std::vector<CUmemGenericAllocationHandle> handles;
    for (std::uint32_t i = 0; i < 12; ++i) {
        handles.push_back(create(kBuffer));
        map(p + i * kBuffer, kBuffer, handles.back());
        write(p + i * kBuffer, kBuffer, i);
    }
    for (int round = 0; round < 3; ++round) {
        // More of its memory moves as the context ends.
        for (std::uint32_t i = 1; i < 12; ++i) bring_in(p + i * kBuffer, kBuffer, nullptr);
        OK(cuCtxSynchronize);
        OK(cuCtxDestroy_v2, context);
        if (round == 0) OK(cuMemUnmap, p, kBuffer);
        if (round == 0) OK(cuMemRelease, handles[0]);
        OK(cuCtxCreate_v2, &context, 0, 0);
        for (std::uint32_t i = 1; i < 12; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, i));
        const Buffer beside(kBuffer, 77);
        for (std::uint32_t i = 1; i < 12; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, i));
        EXPECT(beside.holds(77));
    }
    // One that was not the last, and one that did not end.
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 0);
    OK(cuCtxSetCurrent, other);
    OK(cuCtxDestroy_v2, context);
    OK(cuDevicePrimaryCtxRetain, &other, 0);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    for (std::uint32_t i = 1; i < 12; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, i));
}

TEST_CASE("own mappings: memory outlives the contexts it was made and used in") {
    run_both("own_contexts", Driver::Simulated, {});
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

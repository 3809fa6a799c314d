// Memory that the program maps itself (frameworks' allocators, their expandable segments).
#include <algorithm>
#include <cstring>

#include "tests/entry/own.h"

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

FAMILY_TEST("own mappings: managed addresses are not the program's to map, unmap or free",
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
    EXPECT(free_on_gpu() >= before);
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

// As NVIDIA's growing vector has it.
FAMILY_TEST("own mappings: one array over reservations that follow one another") {
    const Gpu gpu;
    const Buffer out(kBuffer, 9);
    const CUdeviceptr p = reserve(3 * kBuffer);
    OK(cuMemAddressFree, p, 3 * kBuffer);
    std::vector<CUmemGenericAllocationHandle> handles;
    for (std::size_t i = 0; i < 3; ++i) {
        CUdeviceptr next = 0;
        OK(cuMemAddressReserve, &next, kBuffer, 0, p + i * kBuffer, 0);
        EXPECT(next == p + i * kBuffer);
        handles.push_back(create(kBuffer));
        map(next, kBuffer, handles.back());
        write(next, kBuffer, static_cast<std::uint32_t>(i));
    }
    Crowd crowd;
    // Of the first, the last and one between: all of it is meant.
    for (const std::size_t given : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
        for (std::size_t i = 0; i < 3; ++i) evict(crowd, p + i * kBuffer, kBuffer);
        // A kernel that only reads, so that what is there need not be copied out.
        copy_by_kernel(out.at(), p + given * kBuffer);
        OK(cuStreamSynchronize, nullptr);
        for (std::size_t i = 0; i < 3; ++i) EXPECT(on_device(p + i * kBuffer, kBuffer));
        const std::uint32_t five = 5;
        EXPECT(launch("add", 3 * kWords, nullptr, p, p, five, 3 * kWords) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, nullptr);
    }
    for (std::size_t i = 0; i < 3; ++i) {
        evict(crowd, p + i * kBuffer, kBuffer);
        std::vector<std::uint8_t> data(kBuffer);
        OK(cuMemcpyDtoH_v2, data.data(), p + i * kBuffer, kBuffer);
        std::vector<std::uint8_t> expected = pattern(kBuffer, static_cast<std::uint32_t>(i));
        for (std::size_t at = 0; at < kBuffer; at += 4) {
            std::uint32_t word;
            std::memcpy(&word, expected.data() + at, 4);
            word += 3 * 5;
            std::memcpy(expected.data() + at, &word, 4);
        }
        EXPECT(data == expected);
        OK(cuMemUnmap, p + i * kBuffer, kBuffer);
        OK(cuMemRelease, handles[i]);
        OK(cuMemAddressFree, p + i * kBuffer, kBuffer);
    }
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

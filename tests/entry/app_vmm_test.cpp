// Memory that the app maps itself (a framework's expandable segments): the driver's, and it counts as taken.
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

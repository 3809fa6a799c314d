// What a program does by the tables that cuGetExportTable gives passes the shim: such memory is the driver's,
// and such work is not known of. It costs room, and is slow or faults, but what is managed keeps its bytes.
#include <cstdlib>
#include <cstring>

#include "tests/entry/overlay/record.h"
#include "tests/entry/rig.h"

using namespace rig;

namespace {

const overlay::ExportTable& export_table() {
    const void* table = nullptr;
    const CUuuid any{};
    OK(cuGetExportTable, &table, &any);
    return *static_cast<const overlay::ExportTable*>(table);
}

// Adds to each word of `buffer`; answers what the work comes to.
CUresult add_past_the_shim(const Buffer& buffer, std::uint32_t added) {
    CUdeviceptr at = buffer.at();
    std::uint32_t words = kWords;
    void* parameters[] = {&at, &at, &added, &words};
    EXPECT(export_table().launch(kernel("add"), kWords / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters,
                                 nullptr) == CUDA_SUCCESS);
    return CU(cuStreamSynchronize)(nullptr);
}

}  // namespace

OVERLAY_TEST("export tables: memory that comes by one counts as taken, and keeps its bytes") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    CUdeviceptr unseen = 0, none = 0;
    EXPECT(export_table().allocate(&unseen, kBuffer) == CUDA_SUCCESS);
    Crowd crowd;
    OK(cuMemsetD32_v2, unseen, 7, kWords);
    for (int round = 0; round < 3; ++round) {
        crowd.evict(a);
        crowd.bring_in(a);
    }
    // Nobody makes room for it.
    EXPECT(export_table().allocate(&none, kBuffer) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(a.holds(1));
    std::vector<std::uint32_t> words(kWords);
    OK(cuMemcpyDtoH_v2, words.data(), unseen, kBuffer);
    EXPECT(words == std::vector<std::uint32_t>(kWords, 7));
    EXPECT(export_table().free(unseen) == CUDA_SUCCESS);
}

OVERLAY_TEST(
    "export tables: work that is launched by one finds what is on the GPU, and elsewhere what is in place") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    std::vector<std::uint32_t> expected(kWords);
    std::memcpy(expected.data(), a.read().data(), kBuffer);
    EXPECT(add_past_the_shim(a, 1) == CUDA_SUCCESS);
    Crowd crowd;
    crowd.evict(a);
    const CUresult result = add_past_the_shim(a, 2);
    if (result == CUDA_SUCCESS) {
        for (std::uint32_t& word : expected) word += 1 + 2;
        std::vector<std::uint32_t> words(kWords);
        std::memcpy(words.data(), a.read().data(), kBuffer);
        EXPECT(words == expected);
    } else {
        EXPECT(result == CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    // It faults where evicted memory is unmapped.
    const char* const host_vmm = std::getenv("SIMCUDA_HOST_VMM");
    EXPECT((result == CUDA_SUCCESS) == (!host_vmm || *host_vmm != '0'));
}

// What is limited runs out: the call that asks for too much is refused, what there is stays whole, and after
// frees it goes on.
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

using Buffers = std::vector<std::unique_ptr<Buffer>>;

// One buffer more; false: no room for it.
bool add(Buffers& buffers) {
    CUdeviceptr address = 0;
    const CUresult status = CU(cuMemAlloc_v2)(&address, kBuffer);
    if (status != CUDA_SUCCESS) {
        EXPECT(status == CUDA_ERROR_OUT_OF_MEMORY);
        return false;
    }
    CU(cuMemFree_v2)(address);
    buffers.push_back(std::make_unique<Buffer>(kBuffer, static_cast<std::uint32_t>(buffers.size())));
    return true;
}

void fill_up(Buffers& buffers) {
    while (buffers.size() < 64 && add(buffers)) {
    }
}

void check(const Buffers& buffers) {
    for (std::size_t i = 0; i < buffers.size(); ++i) EXPECT(buffers[i]->holds(static_cast<std::uint32_t>(i)));
}

}  // namespace

BODY(exhausted) {
    const Gpu gpu;
    Buffers buffers;
    fill_up(buffers);
    const std::size_t most = buffers.size();
    EXPECT(most >= 4);
    EXPECT(most < 64);
    check(buffers);
    for (int round = 0; round < 3; ++round) {
        buffers.resize(most / 2);
        check(buffers);
        fill_up(buffers);
        EXPECT(buffers.size() == most);
        check(buffers);
    }
}

TEST_CASE("exhaustion: host memory that the shim may pin") {
    run_both("exhausted", Driver::Simulated, {{"LMS_HOST_LIMIT", "3M"}});
}
TEST_CASE("exhaustion: host memory that the driver pins") {
    run_both("exhausted", Driver::Simulated, {{"SIMCUDA_HOST_MEMORY", "2M"}});
}
// Pinned memory takes neither, so there LMS_HOST_LIMIT ends it.
TEST_CASE("exhaustion: handles and mappings that the driver has") {
    for (const char* limit : {"SIMCUDA_HANDLES", "SIMCUDA_MAPPINGS"}) {
        CAPTURE(limit);
        run_both("exhausted", Driver::Simulated,
                 {{limit, limit[8] == 'H' ? "60" : "120"}, {"LMS_HOST_LIMIT", "6M"}});
    }
}

TEST_CASE("exhaustion: the disk") {
    run_both("exhausted", Driver::Simulated,
             {{"LMS_HOST_LIMIT", "3M"},
              {"LMS_STATS", "/dev/full"},
              {"LMS_TRACE", "/dev/full"},
              {"LMS_LOG", "debug:/dev/full"}});
}

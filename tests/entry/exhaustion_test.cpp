// What is limited runs out: the call that asks for too much is refused, what there is stays whole, and after
// frees it goes on.
#include <dlfcn.h>

#include <algorithm>

#include "tests/entry/graph_rig.h"
#include "tests/support/process.h"

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

// Evicted in chunks of one size, then freed, and others of another size in their place.
BODY(exhausted_by_other_sizes) {
    const Gpu gpu;
    for (const std::size_t bytes : {2 * kGranule, kGranule, 2 * kGranule}) {
        std::vector<std::unique_ptr<Buffer>> buffers;
        for (std::size_t i = 0; i < 17 * kMiB / bytes; ++i)
            buffers.push_back(std::make_unique<Buffer>(bytes, static_cast<std::uint32_t>(i)));
        for (std::size_t i = 0; i < buffers.size(); ++i)
            EXPECT(buffers[i]->holds(static_cast<std::uint32_t>(i)));
    }
}

TEST_CASE("exhaustion: host memory that the driver pins, where some of another size lies free") {
    run_both("exhausted_by_other_sizes", Driver::Simulated,
             {{"SIMCUDA_MEMORY", "16M"}, {"SIMCUDA_HOST_MEMORY", "2M"}});
}

// A handle that there was can be mapped: programs take an error there for one of their own.
BODY(exhausted_by_handles) {
    const Gpu gpu;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    std::size_t granularity = 0;
    OK(cuMemGetAllocationGranularity, &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    const std::size_t bytes = std::max(kBuffer, granularity);
    CUdeviceptr base = 0;
    OK(cuMemAddressReserve, &base, 64 * bytes, 0, 0, 0);
    std::vector<CUmemGenericAllocationHandle> handles;
    CUresult status = CUDA_SUCCESS;
    while (handles.size() < 64) {
        CUmemGenericAllocationHandle handle = 0;
        status = CU(cuMemCreate)(&handle, bytes, &properties, 0);
        if (status != CUDA_SUCCESS) break;
        OK(cuMemMap, base + handles.size() * bytes, bytes, 0, handle, 0);
        handles.push_back(handle);
    }
    EXPECT(status == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(handles.size() * bytes > 4 * kMiB);
    // All of them at once, too.
    for (std::size_t i = 0; i < handles.size(); ++i) {
        OK(cuMemUnmap, base + i * bytes, bytes);
        OK(cuMemRelease, handles[i]);
    }
    std::size_t again = 0;
    for (CUmemGenericAllocationHandle& handle : handles) {
        if (CU(cuMemCreate)(&handle, bytes, &properties, 0) != CUDA_SUCCESS) break;
        ++again;
    }
    EXPECT(again == handles.size());
    for (std::size_t i = 0; i < again; ++i) OK(cuMemMap, base + i * bytes, bytes, 0, handles[i], 0);
}

TEST_CASE("exhaustion: a handle of the program's is refused when it is made, not when it is mapped") {
    run_both("exhausted_by_handles", Driver::Simulated, {{"SIMCUDA_HOST_MEMORY", "2M"}});
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

namespace {

// With calls that are refused as the shim asks for host memory or threads (tests/faults/no_memory.c).
Environment refusing() {
    return {{"LD_PRELOAD", support::build_dir() + "/faults/no_memory.so:" + support::preloaded_shim()}};
}

template <typename Argument>
void tell(const char* what, Argument argument) {
    const auto function = reinterpret_cast<void (*)(Argument)>(::dlsym(RTLD_DEFAULT, what));
    EXPECT(function);
    if (function) function(argument);
}

}  // namespace

BODY(no_memory_for_the_shim) {
    const Gpu gpu;
    constexpr std::size_t kEnough = 100'000;
    Buffers kept;
    for (std::uint32_t i = 0; i < 8; ++i) kept.push_back(std::make_unique<Buffer>(kBuffer, i));
    std::vector<CUdeviceptr> more;
    CUresult refused = CUDA_SUCCESS;
    const auto take = [&] {
        CUdeviceptr address = 0;
        refused = CU(cuMemAlloc_v2)(&address, 16 << 10);
        if (refused == CUDA_SUCCESS) more.push_back(address);
        return refused == CUDA_SUCCESS && more.size() < kEnough;
    };
    const auto give_back = [&] {
        for (const CUdeviceptr address : more) OK(cuMemFree_v2, address);
        more.clear();
    };
    tell("limit_host_memory", 1L << 19);
    while (take()) {
    }
    EXPECT(refused == CUDA_ERROR_OUT_OF_MEMORY);
    const std::size_t most = more.size();
    EXPECT(most > 100);
    // What there is moves, is used and is read as ever, with nothing at all.
    tell("limit_host_memory", 0L);
    check(kept);
    for (std::uint32_t i = 0; i < kept.size(); ++i)
        kept[i]->fill(static_cast<std::uint32_t>(kept.size()) - i - 1);
    std::ranges::reverse(kept);
    check(kept);
    tell("limit_host_memory", 1L << 19);
    give_back();
    while (take()) {
    }
    EXPECT(more.size() > most / 4);
    tell("limit_host_memory", -1L);
    for (std::size_t i = 0; i < most + 100; ++i) EXPECT(take());
    give_back();
    check(kept);
}
TEST_CASE("exhaustion: host memory that the shim allocates") {
    run_both("no_memory_for_the_shim", Driver::Simulated, refusing());
}

BODY(no_threads_for_the_shim) {
    OK(cuInit, 0);
    for (int round = 0; round < 3; ++round) {
        CUcontext context = nullptr;
        OK(cuDevicePrimaryCtxRetain, &context, 0);
        OK(cuCtxSetCurrent, context);
        Buffers buffers;
        fill_up(buffers);
        check(buffers);
        tell("refuse_threads", 1);
        OK(cuDevicePrimaryCtxReset_v2, 0);
        tell("refuse_threads", 0);
    }
}
TEST_CASE("exhaustion: threads, as a context ends") {
    run_both("no_threads_for_the_shim", Driver::Simulated, refusing());
}

// The context that the shim works through goes, while another's buffers have all the host memory that there
// is, but for what the program has pinned itself.
BODY(exhausted_as_the_context_goes) {
    OK(cuInit, 0);
    CUcontext goes = nullptr;
    OK(cuCtxCreate_v2, &goes, 0, 0);
    { const Buffer first(kBuffer, 0); }
    CUcontext stays = nullptr;
    OK(cuCtxCreate_v2, &stays, 0, 0);
    Buffers buffers;
    fill_up(buffers);
    EXPECT(buffers.size() > 8);
    std::vector<void*> pinned(64);
    std::erase_if(pinned, [](void*& each) { return CU(cuMemHostAlloc)(&each, 64 << 10, 0) != CUDA_SUCCESS; });
    OK(cuCtxDestroy_v2, goes);
    for (void* const each : pinned) OK(cuMemFreeHost, each);
    check(buffers);
    for (int round = 0; round < 2; ++round) {
        for (const auto& buffer : buffers)
            OK(cuMemcpyHtoD_v2, buffer->at(), pattern(kBuffer, 3).data(), kBuffer);
        for (const auto& buffer : buffers) EXPECT(buffer->holds(3));
    }
    buffers.clear();
    fill_up(buffers);
    check(buffers);
}

TEST_CASE("exhaustion: pinned memory is pinned again in another context, of no more than there is") {
    CHECK(run("exhausted_as_the_context_goes", Driver::Simulated,
              {{"SIMCUDA_HOST_MEMORY", "6M"}, {"LMS_HOST_MAPPING", "off"}})
              .failures == "");
    CHECK(run("exhausted_as_the_context_goes", Driver::Simulated,
              {{"LMS_HOST_LIMIT", "6M"}, {"LMS_HOST_MAPPING", "off"}})
              .failures == "");
}

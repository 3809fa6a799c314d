// Calls that take memory of the GPU for the driver: where there is none left, room is made and they are tried
// again.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "tests/entry/overlay/record.h"
#include "tests/entry/rig.h"
#include "tests/support/process.h"

using namespace rig;

namespace {

enum class Action { HOOK, RETRY, PASS };
struct Row {
    const char* symbol;
    Action action;
};
constexpr Row kRows[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) {#symbol, Action::action},
#include "shim/entry_points.def"
};

using Call = CUresult (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                          std::uint64_t, std::uint64_t, std::uint64_t);

constexpr std::size_t kWanted = kMiB;

void want_room(const char* name, std::size_t wanted = kWanted) {
    void* const driver = dlopen(std::getenv("LMS_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    const auto found = reinterpret_cast<decltype(&overlay_want_room)>(dlsym(driver, "overlay_want_room"));
    found(name, wanted);
}

CUresult ask(const char* name) {
    return reinterpret_cast<Call>(function(name))(overlay::kAsked, 0, 0, 0, 0, 0, 0, 0);
}

bool pins_host_memory(std::string_view name) {
    return name.starts_with("cuMemAllocHost") || name.starts_with("cuMemHostAlloc") ||
           name.starts_with("cuMemHostRegister");
}

constexpr std::size_t kLarge = 8 * kMiB;  // twice the GPU
constexpr auto kLargeWords = static_cast<unsigned>(kLarge / 4);

}  // namespace

OVERLAY_TEST("oom retry: is made for every tracked call that finds none", "oom-retry-rows") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer rest(6 * kBuffer);
    int tracked = 0;
    for (const Row& row : kRows) {
        if (row.action != Action::RETRY) continue;
        OK(cuMemsetD8_v2, rest.at(), 2, rest.bytes());
        OK(cuStreamSynchronize, nullptr);
        const std::size_t free = overlay::free_bytes();
        EXPECT(free < kWanted);
        // To pin host memory takes page tables of the GPU alone.
        want_room(row.symbol, pins_host_memory(row.symbol) ? free + 1 : kWanted);
        if (const CUresult result = ask(row.symbol); result != CUDA_SUCCESS) {
            failed(__FILE__, __LINE__, row.symbol + (" -> " + error_text(result)));
            stop();
        }
        ++tracked;
    }
    EXPECT(tracked > 40);
    EXPECT(a.holds(1));
}

// What the program pins where the shim holds most of what may be pinned, and needs little of it any more.
// Evictions would only take more of it.
BODY(room_to_pin) {
    const Gpu gpu;
    using Buffers = std::vector<std::unique_ptr<Buffer>>;
    void* memory = nullptr;
    std::vector<std::uint8_t> own(2 * kMiB);
    const auto allocated = [&](std::size_t bytes) { return CU(cuMemAllocHost_v2)(&memory, bytes); };
    const auto flagged = [&](std::size_t bytes) { return CU(cuMemHostAlloc)(&memory, bytes, 0); };
    const auto registered = [&](std::size_t bytes) { return CU(cuMemHostRegister_v2)(own.data(), bytes, 0); };
    CUmemGenericAllocationHandle handle = 0;
    const auto created = [&](std::size_t bytes) {
        CUmemAllocationProp on_host{};
        on_host.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        on_host.location.type = CU_MEM_LOCATION_TYPE_HOST;
        return CU(cuMemCreate)(&handle, bytes, &on_host, 0);
    };
    std::vector<std::function<CUresult(std::size_t)>> forms = {allocated, flagged, registered};
    int creates = 0;
    OK(cuDeviceGetAttribute, &creates, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
       gpu.device);
    if (creates) forms.push_back(created);
    for (const auto& pins : forms) {
        {
            Buffers freed;  // 6 MiB where 7 may be pinned and the GPU has 4
            for (int i = 0; i < 20; ++i) freed.push_back(std::make_unique<Buffer>(kBuffer, 1));
        }
        const Buffer kept(3 * kMiB, 2);
        const auto resident = [&] { return where::granules_on_device(kept.at(), kept.bytes()).first; };
        const std::size_t before = resident();
        const std::size_t all = 3 * kMiB / kGranule;
        EXPECT(before == all);
        EXPECT(pins(2 * kMiB) == CUDA_SUCCESS);
        EXPECT(resident() == all);
        if (memory) {
            OK(cuMemFreeHost, std::exchange(memory, nullptr));
        } else if (handle) {
            OK(cuMemRelease, std::exchange(handle, 0));
        } else {
            OK(cuMemHostUnregister, own.data());
        }
        // More than there is: no eviction gives that.
        EXPECT(flagged(64 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
        if (creates) EXPECT(created(64 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT(resident() + kMiB / kGranule >= all);
        EXPECT(kept.holds(2));
    }
}

TEST_CASE("oom retry: what pins host memory is given the shim's own, and the GPU is left as it is") {
    run_both("room_to_pin", Driver::Simulated, {{"SIMCUDA_HOST_MEMORY", "7M"}});
}

// Of a GPU that copies out 0.6 MB a second.
BODY(room_slowly) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1), b(kBuffer, 2), c(kBuffer, 3);
    want_room("cuFuncLoad");
    EXPECT(overlay::free_bytes() < kWanted);
    EXPECT(ask("cuFuncLoad") == CUDA_SUCCESS);
    EXPECT(a.holds(1));
    EXPECT(b.holds(2));
    EXPECT(c.holds(3));
}

TEST_CASE("oom retry: is waited for as long as it grows") {
    const Environment slow = {
        {"SIMCUDA_HOST_VMM", "0"}, {"SIMCUDA_MEMORY", "2M"}, {"SIMCUDA_D2H_GBPS", "0.0006"}};
    CHECK(run("room_slowly", Driver::Overlay, slow).failures == "");
}

namespace {

// All that is left of the GPU, taken past the shim.
class Rest {
  public:
    Rest() {
        for (CUdeviceptr granule = 0; SIM(cuMemAlloc_v2)(&granule, kGranule) == CUDA_SUCCESS;)
            granules_.push_back(granule);
    }
    ~Rest() {
        for (const CUdeviceptr granule : granules_) SIM(cuMemFree_v2)(granule);
    }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

  private:
    std::vector<CUdeviceptr> granules_;
};

}  // namespace

BODY(room_for_one_stream) {
    const Gpu gpu;
    const Buffer large(3 * kMiB, 1);
    const auto resident = [&] { return where::granules_on_device(large.at(), large.bytes()).first; };
    EXPECT(resident() == 3 * kMiB / kGranule);
    const Rest others;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    EXPECT(resident() < 3 * kMiB / kGranule);
    EXPECT(resident() >= 5 * kMiB / 2 / kGranule);
    EXPECT(large.holds(1));
}

TEST_CASE("oom retry: little is made for what takes little") {
    run_both("room_for_one_stream", Driver::Simulated, {{"SIMCUDA_STREAM_BYTES", "128K"}});
}

// Streams, contexts, code and graphs, each of which takes 128 KiB of the GPU here and keeps it.
BODY(room_for_objects) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    const std::string path = std::getenv("ENTRY_KERNELS") + std::string(".fatbin");
    const std::string image = support::read_file(path);
    OK(cuGraphCreate, &graph, 0);
#define IS_MADE(name, ...)                      \
    do {                                        \
        crowd.press();                          \
        const Rest others;                      \
        FAILS(CUDA_SUCCESS, name, __VA_ARGS__); \
        OK(cuCtxSetCurrent, gpu.context);       \
    } while (0)
    IS_MADE(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    IS_MADE(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0);
    IS_MADE(cuGreenCtxStreamCreate, &stream, nullptr, CU_STREAM_NON_BLOCKING, 0);
    CUgreenCtx green = nullptr;
    IS_MADE(cuGreenCtxCreate, &green, nullptr, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM);
    IS_MADE(cuCtxCreate, &context, 0, gpu.device);
    IS_MADE(cuCtxCreate_v2, &context, 0, gpu.device);
    IS_MADE(cuCtxCreate_v3, &context, nullptr, 0, 0, gpu.device);
    IS_MADE(cuCtxCreate_v4, &context, nullptr, 0, gpu.device);
    IS_MADE(cuModuleLoad, &module, path.c_str());
    IS_MADE(cuModuleLoadData, &module, image.data());
    IS_MADE(cuModuleLoadDataEx, &module, image.data(), 0, nullptr, nullptr);
    IS_MADE(cuModuleLoadFatBinary, &module, image.data());
    IS_MADE(cuGraphInstantiate, &exec, graph, nullptr, nullptr, 0);
    IS_MADE(cuGraphInstantiate_v2, &exec, graph, nullptr, nullptr, 0);
    IS_MADE(cuGraphInstantiateWithFlags, &exec, graph, 0);
    IS_MADE(cuGraphInstantiateWithParams, &exec, graph, &params);
    IS_MADE(cuGraphInstantiateWithParams_ptsz, &exec, graph, &params);
#undef IS_MADE
    EXPECT(a.holds(1));
}

TEST_CASE("oom retry: is made for streams, contexts, code and graphs, by every form") {
    run_both("room_for_objects", Driver::Overlay,
             {{"SIMCUDA_MEMORY", "6M"},
              {"SIMCUDA_STREAM_BYTES", "128K"},
              {"SIMCUDA_CONTEXT_BYTES", "128K"},
              {"SIMCUDA_MODULE_BYTES", "128K"},
              {"SIMCUDA_GRAPH_BYTES", "128K"}});
}

// Calls of before CUDA 4.0 that prepare a launch: the first of a function loads its module.
BODY(room_for_what_is_prepared) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    std::uint32_t word = 1;
    const auto is_made = [&](auto&& prepare) {
        CUfunction function = nullptr;
        OK(cuModuleGetFunction, &function, load_kernels(), "add");
        crowd.press();
        const Rest others;
        EXPECT(prepare(function) == CUDA_SUCCESS);
    };
    is_made([](CUfunction function) { return CU(cuFuncSetBlockShape)(function, 1, 1, 1); });
    is_made([](CUfunction function) { return CU(cuFuncSetSharedSize)(function, 16); });
    is_made([](CUfunction function) { return CU(cuParamSetSize)(function, 16); });
    is_made([&](CUfunction function) { return CU(cuParamSeti)(function, 0, word); });
    is_made([](CUfunction function) { return CU(cuParamSetf)(function, 0, 1.0f); });
    is_made([&](CUfunction function) { return CU(cuParamSetv)(function, 0, &word, sizeof word); });
    EXPECT(a.holds(1));
}

TEST_CASE("oom retry: is made for what prepares a launch in the old way" *
          doctest::test_suite("oom-retry-prepared")) {
    run_both("room_for_what_is_prepared", Driver::Simulated,
             {{"SIMCUDA_MEMORY", "6M"}, {"SIMCUDA_MODULE_BYTES", "128K"}});
}

// The module is loaded at its first launch, and all of the GPU is then held for the very launch.
BODY(room_for_a_module) {
    const Gpu gpu;
    const Buffer all(kLarge, 1);
    for (std::uint32_t i = 1; i <= 2; ++i) {
        EXPECT(launch("add", kLargeWords, nullptr, all.at(), all.at(), 1u, kLargeWords) == CUDA_SUCCESS);
        const std::vector<std::uint8_t> before = pattern(kLarge, 1), after = all.read();
        std::size_t wrong = 0;
        for (std::size_t at = 0; at < kLarge; at += 4) {
            std::uint32_t was = 0, is = 0;
            std::memcpy(&was, &before[at], 4);
            std::memcpy(&is, &after[at], 4);
            wrong += is != was + i;
        }
        EXPECT(wrong == 0);
    }
}

TEST_CASE(
    "oom retry: a launch whose own buffers fill the GPU makes room for its module, and uses them in place") {
    const Outcome outcome = run("room_for_a_module", Driver::Simulated,
                                {{"SIMCUDA_HOST_VMM", "1"}, {"SIMCUDA_MODULE_BYTES", "1M"}});
    CHECK(outcome.failures == "");
}

// The first launch of a module loads it, in a capture too: all of the GPU is then managed memory.
BODY(room_for_a_captured_launch) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    kernel("add");
    crowd.press();
    const Rest others;
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(launch("add", kWords, stream, a.at(), a.at(), 1u, kWords) == CUDA_SUCCESS);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    std::size_t nodes = 0;
    OK(cuGraphGetNodes, graph, nullptr, &nodes);
    EXPECT(nodes == 1);
    EXPECT(a.holds(1));
}

TEST_CASE("oom retry: is made for a launch that is captured") {
    run_both("room_for_a_captured_launch", Driver::Simulated,
             {{"SIMCUDA_MEMORY", "6M"}, {"SIMCUDA_MODULE_BYTES", "128K"}});
}

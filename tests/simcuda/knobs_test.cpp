// Knobs, injected failures, the log and the report.
#include <cudaProfiler.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/simcuda/kernels.h"
#include "tests/simcuda/vmm.h"

namespace {

using namespace sim;

// A file name of the test's own, removed at the end.
class TemporaryFile {
  public:
    TemporaryFile() {
        const int file = ::mkstemp(name_);
        if (file >= 0) ::close(file);
    }
    ~TemporaryFile() { ::unlink(name_); }
    std::string name() const { return name_; }
    std::string text() const {
        std::ostringstream text;
        text << std::ifstream(name_).rdbuf();
        return text.str();
    }

  private:
    char name_[32] = "/tmp/simcuda-test-XXXXXX";
};

void initialise_only() {
    const Gpu gpu;
    std::size_t total = 0;
    OK(cuDeviceTotalMem, &total, 0);
    EXPECT(total == std::size_t{1} << 30);
}

TEST_CASE("knobs: a bad value is named in one line and its default used") {
    std::string said;
    CHECK(run({{"SIMCUDA_MEMORY", "lots"}}, initialise_only, &said) == "");
    CHECK(said ==
          "simcuda: SIMCUDA_MEMORY=lots is not accepted; expected bytes, or a number with K, M, G or T; at "
          "least "
          "1048576; using the default\n");
    const std::vector<std::pair<std::string, std::string>> bad{{"SIMCUDA_DEVICES", "17"},
                                                               {"SIMCUDA_GRANULARITY", "3M"},
                                                               {"SIMCUDA_SEED", "-1"},
                                                               {"SIMCUDA_H2D_GBPS", "fast"},
                                                               {"SIMCUDA_HOST_VMM", "yes"},
                                                               {"SIMCUDA_FAIL", "cuMemCreate"},
                                                               {"SIMCUDA_FAIL", "cuMemCreate:0"},
                                                               {"SIMCUDA_FAIL", "cuMemCreate:1=0"},
                                                               {"SIMCUDA_FAIL", "cuMemCreate:3-2"},
                                                               {"SIMCUDA_FAIL", "cuMemCreate:3-"},
                                                               {"SIMCUDA_FAIL", "cuMemCreate:1=full"},
                                                               {"SIMCUDA_KERNELS", "3"},
                                                               {"SIMCUDA_SMS", "0"}};
    for (const auto& [name, value] : bad) {
        const std::string setting = name + "=" + value;
        CAPTURE(setting);
        CHECK(run({{name, value}}, initialise_only, &said) == "");
        CHECK(said.find("simcuda: " + setting + " is not accepted; expected ") == 0);
        CHECK(said.find('\n') == said.size() - 1);
    }
}

// out[block] = the multiprocessor it runs on and how many there are.
constexpr const char* kWhere = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry where(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %a<3>;
    ld.param.u64 %a0, [out]; mov.u32 %r0, %ctaid.x; mad.wide.u32 %a1, %r0, 8, %a0;
    mov.u32 %r1, %smid; mov.u32 %r2, %nsmid; st.global.v2.u32 [%a1], {%r1, %r2};
    ret;
}
)";

SIM_TEST("knobs: the multiprocessors, and what follows from their number", {{"SIMCUDA_SMS", "3"}}) {
    const Gpu gpu;
    int count = 0, grid = 0, block = 0;
    OK(cuDeviceGetAttribute, &count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device);
    EXPECT(count == 3);
    CUmodule module = nullptr;
    CUfunction where = nullptr;
    OK(cuModuleLoadData, &module, kWhere);
    OK(cuModuleGetFunction, &where, module, "where");
    OK(cuOccupancyMaxPotentialBlockSize, &grid, &block, where, nullptr, 0, 0);
    EXPECT(grid * block == 3 * 1024);
    CUdeviceptr out = 0;
    OK(cuMemAlloc, &out, 64);
    void* parameters[] = {&out};
    OK(cuLaunchCooperativeKernel, where, 3, 1, 1, 1024, 1, 1, 0, nullptr, parameters);
    FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel, where, 4, 1, 1, 1024, 1, 1, 0,
          nullptr, parameters);
    LAUNCH(where, 8, 1, nullptr, out);
    const auto bytes = read_back(out, 64);
    for (unsigned i = 0; i < 8; ++i) EXPECT(bytes[i * 8] < 3 && bytes[i * 8 + 4] == 3);
}

SIM_TEST("knobs: the nth call of a name fails", {{"SIMCUDA_FAIL", "cuMemCreate:3,cuMemAlloc_v2:1"}}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &p, 4);
    OK(cuMemAlloc, &p, 4);
    create(kGranule);
    create(kGranule);
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = on_device();
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &handle, kGranule, &properties, 0);
    create(kGranule);
}

SIM_TEST("knobs: some calls of a name fail one after the other", {{"SIMCUDA_FAIL", "cuMemAlloc:2-4=304"}}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4);
    for (int call = 2; call <= 4; ++call) FAILS(CUDA_ERROR_OPERATING_SYSTEM, cuMemAlloc, &p, 4);
    OK(cuMemAlloc, &p, 4);
}

SIM_TEST("knobs: a base name stands for all its forms", {{"SIMCUDA_FAIL", "cuMemAlloc:2"}}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &p, 4);
    OK(cuMemAlloc, &p, 4);
}

SIM_TEST("knobs: a call fails with the error that is asked for",
         {{"SIMCUDA_FAIL", "cuMemAlloc:1=304,cuMemFree:1=201"}}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    FAILS(CUDA_ERROR_OPERATING_SYSTEM, cuMemAlloc, &p, 4);
    OK(cuMemAlloc, &p, 4);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemFree, p);
    OK(cuMemFree, p);
}

SIM_TEST("knobs: an error that nothing recovers from stays with its context",
         {{"SIMCUDA_FAIL", "cuMemGetInfo:1=700"}}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    std::size_t free_bytes = 0, total = 0;
    OK(cuMemAlloc, &p, 4);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo, &free_bytes, &total);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo, &free_bytes, &total);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree, p);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
}

void leave_memory_behind() {
    const Gpu gpu;
    const auto handle = create(kGranule);
    CUdeviceptr at = 0;
    OK(cuMemAddressReserve, &at, 2 * kGranule, 0, 0, 0);
    OK(cuMemMap, at, kGranule, 0, handle, 0);
    OK(cuMemRelease, handle);
}

TEST_CASE("knobs: the report counts what was not given back") {
    const TemporaryFile file;
    CHECK(run({{"SIMCUDA_REPORT", file.name()}}, leave_memory_behind) == "");
    const auto report = nlohmann::json::parse(file.text());
    CHECK(report["vmm"]["handles"] == 1);
    CHECK(report["vmm"]["mappings"] == 1);
    CHECK(report["vmm"]["reservations"] == 1);
}

void leave_memory_behind_and_die() {
    leave_memory_behind();
    OK(cuProfilerStop);
    std::_Exit(0);
}

TEST_CASE("knobs: the report is written on demand too") {
    const TemporaryFile file;
    CHECK(run({{"SIMCUDA_REPORT", file.name()}}, leave_memory_behind_and_die) == "");
    CHECK(nlohmann::json::parse(file.text())["vmm"]["handles"] == 1);
}

void do_some_work() {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = 0, q = 0;
    OK(cuMemAlloc, &p, 3 << 20);
    OK(cuMemAlloc, &q, 1 << 20);
    const auto data = pattern(1 << 20, 1);
    OK(cuMemcpyHtoD, p, data.data(), data.size());
    OK(cuMemcpyDtoD, q, p, 1000);
    read_back(q, 500);
    LAUNCH(kernels["store"], 1, 1, nullptr, p, 1);
    OK(cuCtxSynchronize);
    OK(cuMemFree, p);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, p);
}

TEST_CASE("knobs: the report counts calls, bytes, peaks and broken rules") {
    const TemporaryFile file;
    CHECK(run({{"SIMCUDA_REPORT", file.name()}}, do_some_work) == "");
    const auto report = nlohmann::json::parse(file.text());
    CHECK(report["calls"]["cuMemAlloc_v2"] == 2);
    CHECK(report["calls"]["cuMemFree_v2"] == 2);
    CHECK(!report["calls"].contains("cuMemCreate"));
    CHECK(report["launches"] == 1);
    CHECK(report["bytes"]["host_to_device"] == 1 << 20);
    CHECK(report["bytes"]["device_to_device"] == 1000);
    CHECK(report["bytes"]["device_to_host"] == 500);
    CHECK(report["devices"][0]["capacity"] == 1 << 30);
    CHECK(report["devices"][0]["peak"] > 4 << 20);
    CHECK(report["devices"][0]["peak"] < 6 << 20);
    CHECK(report["violation_count"] == 1);
    CHECK(report["violations"].size() == 1);
}

TEST_CASE("knobs: the log has a line per call with its result") {
    const TemporaryFile file;
    CHECK(run({{"SIMCUDA_LOG", file.name()}}, do_some_work) == "");
    const std::string text = file.text();
    CHECK(text.find("simcuda: cuInit -> CUDA_SUCCESS\n") == 0);
    CHECK(text.find("simcuda: cuMemFree_v2 -> CUDA_ERROR_INVALID_VALUE\n") != std::string::npos);
}

}  // namespace

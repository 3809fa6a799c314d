// Drivers before CUDA 12.4, which tell neither the parameters of kernels nor their names: launches still name
// their buffers.
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/entry/rig.h"
#include "tests/support/process.h"

using namespace rig;

namespace {

struct Source {
    std::uint32_t summand;
    CUdeviceptr words;
};

// Twelve buffers, of which the GPU holds seven, in a ring: each is the last plus 1.
void go_round(CUfunction add_to) {
    std::vector<CUdeviceptr> ring(12);
    for (CUdeviceptr& each : ring) OK(cuMemAlloc_v2, &each, kBuffer);
    std::vector<std::uint8_t> data = pattern(kBuffer, 1);
    OK(cuMemcpyHtoD_v2, ring[0], data.data(), kBuffer);
    for (std::size_t i = 0; i < 36; ++i) {
        char scale = 1;
        Source source{1, ring[i % 12]};
        std::uint32_t n = kWords;
        void* parameters[] = {&scale, &source, &n, &ring[(i + 1) % 12]};
        OK(cuLaunchKernel, add_to, kWords / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
    }
    for (std::uint32_t i = 0; i < 12; ++i) {
        std::vector<std::uint8_t> found(kBuffer);
        OK(cuMemcpyDtoH_v2, found.data(), ring[i], kBuffer);
        std::vector<std::uint8_t> expected = data;
        for (std::size_t at = 0; at < kBuffer; at += 4) {
            std::uint32_t word = 0;
            std::memcpy(&word, &expected[at], 4);
            word += i == 0 ? 36 : 24 + i;
            std::memcpy(&expected[at], &word, 4);
        }
        EXPECT(found == expected);
    }
}

std::string file(const char* form) {
    return std::getenv("ENTRY_KERNELS") + std::string(form);
}

CUfunction of_module(CUmodule module) {
    CUfunction function = nullptr;
    OK(cuModuleGetFunction, &function, module, "add_to");
    return function;
}

CUlibrary library_of(const char* form) {
    CUlibrary library = nullptr;
    const std::string image = support::read_file(file(form));
    OK(cuLibraryLoadData, &library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    return library;
}

CUkernel of_library(CUlibrary library) {
    CUkernel kernel = nullptr;
    OK(cuLibraryGetKernel, &kernel, library, "add_to");
    return kernel;
}

}  // namespace

BODY(layouts_native_file) {
    const Gpu gpu;
    CUmodule module = nullptr;
    OK(cuModuleLoad, &module, file(".fatbin").c_str());
    go_round(of_module(module));
}
BODY(layouts_native_data) {
    const Gpu gpu;
    CUmodule module = nullptr;
    const std::string image = support::read_file(file(".fatbin"));
    OK(cuModuleLoadData, &module, image.data());
    go_round(of_module(module));
}
BODY(layouts_native_fat_binary) {
    const Gpu gpu;
    CUmodule module = nullptr;
    const std::string image = support::read_file(file(".fatbin"));
    OK(cuModuleLoadFatBinary, &module, image.data());
    go_round(of_module(module));
}
BODY(layouts_ptx) {
    const Gpu gpu;
    CUmodule module = nullptr;
    OK(cuModuleLoadDataEx, &module, support::read_file(file(".ptx")).c_str(), 0, nullptr, nullptr);
    go_round(of_module(module));
}
BODY(layouts_kernel) {
    const Gpu gpu;
    go_round(reinterpret_cast<CUfunction>(of_library(library_of(".fatbin"))));
}
BODY(layouts_kernel_of_file) {
    const Gpu gpu;
    CUlibrary library = nullptr;
    OK(cuLibraryLoadFromFile, &library, file(".fatbin").c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    go_round(reinterpret_cast<CUfunction>(of_library(library)));
}
BODY(layouts_function_of_kernel) {
    const Gpu gpu;
    CUfunction function = nullptr;
    OK(cuKernelGetFunction, &function, of_library(library_of(".ptx")));
    go_round(function);
}

TEST_CASE("layouts: a driver that does not tell them" * doctest::test_suite("untold-layouts")) {
    for (const std::string body :
         {"layouts_native_file", "layouts_native_data", "layouts_native_fat_binary", "layouts_ptx",
          "layouts_kernel", "layouts_kernel_of_file", "layouts_function_of_kernel"}) {
        for (const char* host_mapping : {"1", "0"}) {
            CAPTURE(body);
            CAPTURE(host_mapping);
            const std::string stats = support::scratch_file("stats.json");
            const Outcome outcome =
                run(body, Driver::Old, {{"SIMCUDA_HOST_VMM", host_mapping}, {"LMS_STATS", stats}});
            CHECK(outcome.failures == "");
            const auto counted = nlohmann::json::parse(support::read_file(stats));
            CHECK(counted["fills"] > 20);
            CHECK(counted["in_place_launches"] == 0);
            // Nothing is asked of the driver that it lacks.
            CHECK(outcome.err.find("cuFuncGetParamInfo") == std::string::npos);
            CHECK(outcome.err.find("cuKernelGetName") == std::string::npos);
        }
    }
}

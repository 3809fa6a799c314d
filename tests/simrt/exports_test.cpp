// The simulated runtime exports what the installed headers declare, under the name of the library's version.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "tests/support/process.h"

namespace {

// Names that `header` declares as functions of the runtime.
std::set<std::string> declared(const std::string& header) {
    const std::string text = support::read_file(CUDA_INCLUDE "/" + header);
    REQUIRE_MESSAGE(!text.empty(), header);
    std::set<std::string> names;
    const std::regex declaration(R"(extern [^;()]*CUDARTAPI\s+(cuda\w+)\()");
    for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it) {
        names.insert((*it)[1]);
    }
    // What the per-thread default stream turns them into.
    const std::regex rename(R"(#define (cuda\w+)\s+__CUDART_API_(PTDS|PTSZ)\(\w+\))");
    for (std::sregex_iterator it(text.begin(), text.end(), rename), end; it != end; ++it) {
        names.insert((*it)[1].str() + ((*it)[2] == "PTDS" ? "_ptds" : "_ptsz"));
    }
    return names;
}

struct Runtime {
    Runtime()
        : library(dlopen((support::build_dir() + "/sim/libcudart.so.13").c_str(), RTLD_NOW | RTLD_LOCAL)) {
        REQUIRE_MESSAGE(library, dlerror());
    }
    bool exports(const std::string& name) const {
        return dlvsym(library, name.c_str(), "libcudart.so.13") != nullptr;
    }
    void* library;
};

}  // namespace

TEST_CASE("exports: everything cuda_runtime_api.h declares, in both forms") {
    const Runtime runtime;
    const std::set<std::string> names = declared("cuda_runtime_api.h");
    CHECK(names.size() > 350);
    for (const std::string& name : names) CHECK_MESSAGE(runtime.exports(name), name);
    for (const std::string& name : declared("cuda_profiler_api.h"))
        CHECK_MESSAGE(runtime.exports(name), name);
}

TEST_CASE("exports: what nvcc's host code calls") {
    const Runtime runtime;
    for (const char* name :
         {"__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary",
          "__cudaRegisterFunction", "__cudaRegisterVar", "__cudaRegisterManagedVar", "__cudaInitModule",
          "__cudaGetKernel", "__cudaLaunchKernel", "__cudaLaunchKernel_ptsz", "__cudaPushCallConfiguration",
          "__cudaPopCallConfiguration"}) {
        CHECK_MESSAGE(runtime.exports(name), name);
    }
    CHECK_FALSE(runtime.exports("cudaNoSuchFunction"));
}

TEST_CASE("exports: what is lacking says so, once for each function") {
    const support::Result result =
        support::run({"python3", "-c",
                      "import ctypes\n"
                      "l = ctypes.CDLL('" +
                          support::build_dir() +
                          "/sim/libcudart.so.13')\n"
                          "print([l.cudaImportExternalMemory() for i in range(3)], l.cudaGetLastError())\n"});
    CHECK(result.out == "[801, 801, 801] 801\n");
    CHECK(result.err ==
          "simcuda: the simulated runtime lacks cudaImportExternalMemory: cudaErrorNotSupported\n");
}

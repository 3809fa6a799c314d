// Where there is no driver, and where nobody asks for one.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

using namespace drivers;

namespace {

probe::Environment no_driver() {
    return {{"LD_PRELOAD", probe::built("liblmsshim.so")}};
}

}  // namespace

PROBE(calls_answer_that_there_is_no_device) {
    for (const table::Row& row : table::kRows) {
        if (row.action != table::Action::PASS || row.symbol.starts_with("cuGetError")) continue;
        CAPTURE(row.symbol);
        CHECK(reinterpret_cast<int (*)(int)>(shim_function(row.symbol))(0) == kNoDevice);
        CHECK(dlsym(libcuda(), std::string(row.symbol).c_str()) == shim_function(row.symbol));
    }
    using Describe = int (*)(int, const char**);
    const char* text = nullptr;
    CHECK(reinterpret_cast<Describe>(shim_function("cuGetErrorName"))(kNoDevice, &text) == kSuccess);
    CHECK(std::string(text) == "CUDA_ERROR_NO_DEVICE");
    CHECK(reinterpret_cast<Describe>(shim_function("cuGetErrorString"))(kNoDevice, &text) == kSuccess);
    CHECK(std::string(text) == "no CUDA-capable device is detected");

    void* function = &function;
    int status = -1;
    const auto lookup = reinterpret_cast<GetProcAddressV2>(shim_function("cuGetProcAddress_v2"));
    CHECK(lookup("cuInit", &function, 13000, kDefault, &status) == kNotFound);
    CHECK(function == nullptr);
    CHECK(status == kSymbolUnknown);
    CHECK(dlsym(libcuda(), "cuNoSuchFunction") == nullptr);
    CHECK(std::string(dlerror()).find("cuNoSuchFunction") != std::string::npos);
}

TEST_CASE("absent: without a driver every call answers that there is no device") {
    probe::run_probe("calls_answer_that_there_is_no_device", no_driver()).check();
}

TEST_CASE("absent: without a driver NVIDIA's runtime answers as without the shim, static and shared") {
    for (const char* name : {"runtime_static", "runtime_shared"}) {
        CAPTURE(name);
        // The shared runtime is the toolkit's own.
        const probe::Environment runtime{{"LD_LIBRARY_PATH", CUDA_HOME "/lib64:" CUDA_HOME "/lib"}};
        const std::string program = probe::built(std::string("interpose/") + name);
        const probe::Result bare = probe::run({program}, runtime);
        const probe::Result shimmed = probe::run({program}, probe::with(runtime, no_driver()));
        CHECK(shimmed.status == bare.status);
        CHECK(shimmed.out == bare.out);
        CHECK(shimmed.err == bare.err);
    }
}

TEST_CASE("absent: a process that never touches CUDA prints nothing and loads no driver") {
    const auto environment = probe::with(probe::preloaded(), {{"LMS_LOG", "debug"}});
    const probe::Result result = probe::run({"grep", "-c", "libcuda", "/proc/self/maps"}, environment);
    CHECK(result.err == "");
    CHECK(result.out == "0\n");
    CHECK(result.status == 1);
}

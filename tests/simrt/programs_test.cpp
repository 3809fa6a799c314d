// Programs built by nvcc, on the simulated runtime and driver, with several seeds for what is left to chance.
#include <doctest/doctest.h>

#include <string>

#include "tests/support/process.h"

namespace {

constexpr const char* kPrograms[] = {
    "arithmetic",  "arrays",   "callbacks",  "copies_2d", "device_streams", "errors",      "graph_loops",
    "graph_nodes", "graphs",   "ipc",        "launches",  "linked",         "linked_list", "malloc_async",
    "mipmaps",     "nested",   "per_thread", "reduce",    "runtime_calls",  "sgemm",       "streams",
    "symbols",     "textures", "threads",    "vector_add"};

support::Result run(const std::string& program, std::map<std::string, std::string> environment,
                    const std::string& mib = "4") {
    environment["LD_LIBRARY_PATH"] = support::build_dir() + "/sim";
    return support::run({support::build_dir() + "/apps/" + program, mib}, environment);
}

}  // namespace

TEST_CASE("programs: all run to the end, whatever the seed") {
    for (const char* program : kPrograms) {
        for (int seed = 1; seed <= 4; ++seed) {
            CAPTURE(program);
            CAPTURE(seed);
            const support::Result result = run(program, {{"SIMCUDA_SEED", std::to_string(seed)}});
            CHECK_MESSAGE(result.status == 0, result.err);
            CHECK(result.out == "ok\n");
            CHECK(result.err == "");
        }
    }
}

TEST_CASE("programs: none breaks a rule that the simulated driver watches") {
    for (const char* program : kPrograms) {
        const bool on_purpose = std::string(program) == "errors" || std::string(program) == "callbacks";
        if (on_purpose) continue;
        CAPTURE(program);
        const std::string report = support::scratch_file(std::string(program) + ".report");
        const support::Result result = run(program, {{"SIMCUDA_REPORT", report}});
        CHECK(result.status == 0);
        const std::string text = support::read_file(report);
        CHECK_MESSAGE(text.find("\"violation_count\": 0,") != std::string::npos, text);
    }
}

TEST_CASE("programs: on one device and on several") {
    for (const char* devices : {"1", "2", "5"}) {
        const support::Result result = run("devices", {{"SIMCUDA_DEVICES", devices}}, "1");
        CHECK_MESSAGE(result.status == 0, result.err);
        CHECK(result.out == "ok\n");
    }
}

TEST_CASE("programs: one built with AddressSanitizer, whose heap lies below device memory") {
    // Leaks are looked for by tracing the process, which not every machine allows.
    const support::Result result = run("../asan/reduce", {{"ASAN_OPTIONS", "detect_leaks=0"}});
    CHECK_MESSAGE(result.status == 0, result.err);
    CHECK(result.out == "ok\n");
}

TEST_CASE("programs: without room they are out of memory") {
    const support::Result result = run("vector_add", {{"SIMCUDA_MEMORY", "4M"}}, "16");
    CHECK(result.status == 1);
    CHECK(result.err.find("cudaErrorMemoryAllocation") != std::string::npos);
}

TEST_CASE("programs: without a compiler for kernels they are told so") {
    const std::string empty = support::scratch_file("cache");
    const support::Result result = run("vector_add", {{"PATH", "/nowhere"}, {"SIMCUDA_CACHE", empty}});
    CHECK(result.status == 1);
    CHECK(result.err.find("cannot go on: cc failed: cannot run cc: No such file or directory\n") !=
          std::string::npos);
}

TEST_CASE("programs: without a driver, or without a device, they are told which") {
    // The runtime alone, in a folder of its own.
    const std::string runtime = support::scratch_file("libcudart.so.13");
    REQUIRE(support::run({"cp", support::build_dir() + "/sim/libcudart.so.13", runtime}).status == 0);
    const std::string folder = runtime.substr(0, runtime.rfind('/'));
    const support::Result alone = support::run({"python3", "-c",
                                                "import ctypes\n"
                                                "l = ctypes.CDLL('" +
                                                    runtime +
                                                    "')\n"
                                                    "n = ctypes.c_int(7)\n"
                                                    "print(l.cudaGetDeviceCount(ctypes.byref(n)), "
                                                    "l.cudaDriverGetVersion(ctypes.byref(n)), n.value)\n"},
                                               {{"LD_LIBRARY_PATH", folder}});
    CHECK_MESSAGE(alone.out == "35 0 0\n", alone.err);

    const support::Result none = run("vector_add", {{"SIMCUDA_DEVICES", "0"}});
    CHECK(none.status == 1);
    CHECK(none.err.find("cudaErrorNoDevice") != std::string::npos);
}

TEST_CASE("programs: the driver is found by cuGetProcAddress_v2 alone") {
    const std::string report = support::scratch_file("lookups.report");
    const support::Result result = run("vector_add", {{"SIMCUDA_REPORT", report}});
    CHECK(result.status == 0);
    const std::string text = support::read_file(report);
    CHECK(text.find("cuGetProcAddress_v2") != std::string::npos);
    CHECK(text.find("cuGetExportTable") == std::string::npos);
}

// What is in examples/ does what it says.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/process.h"

namespace {

support::Result run(const std::string& words, const std::string& memory) {
    return support::run(
        {"sh", "-c", "exec " + support::build_dir() + "/lms run --sim --sim-memory " + memory + " " + words},
        {{"LMS_THRESHOLD", "16K"}, {"SIMCUDA_GRANULARITY", "64K"}});
}

}  // namespace

TEST_CASE("examples: layers gives the same result in too little memory, with a policy of its own too") {
    const std::string layers = support::build_dir() + "/examples/layers 8 1";
    const support::Result large = run("--summary=off " + layers, "64M");
    REQUIRE_MESSAGE(large.status == 0, large.err);
    REQUIRE(large.out.starts_with("result "));
    const std::string policy = support::scratch_file("lfu.so");
    REQUIRE(support::run({"cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-Iinclude", "-o", policy,
                          "examples/lfu.c"})
                .status == 0);
    const std::string trace = support::scratch_file("layers.lmstrace");
    for (const std::string& options :
         {"--trace " + trace + " --log info", "--policy " + policy + " --log info"}) {
        const support::Result small = run(options + " -- " + layers, "5M");
        CAPTURE(small.err);
        CHECK(small.status == 0);
        CHECK(small.out == large.out);
        CHECK(small.err.find("MiB came in") != std::string::npos);
        CHECK((options.starts_with("--trace") || small.err.find("policy lfu") != std::string::npos));
    }
    const support::Result report = support::run({support::build_dir() + "/lms", "report", "--json", trace});
    const auto told = nlohmann::json::parse(report.out, nullptr, false);
    REQUIRE(told.is_object());
    REQUIRE(told["regions"].size() == 1);
    CHECK(told["regions"][0]["name"] == "step");
    CHECK(told["regions"][0]["times"] == 4);
    CHECK(told["regions"][0]["bytes_in"] > 0);
}

TEST_CASE("examples: layers runs without the shim") {
    const std::string build = support::build_dir();
    const std::map<std::string, std::string> simulated{{"LD_LIBRARY_PATH", build + "/sim"},
                                                       {"SIMCUDA_MEMORY", "64M"}};
    const support::Result alone = support::run({build + "/examples/layers", "8", "1"}, simulated);
    INFO(alone.err);
    CHECK(alone.status == 0);
    CHECK(alone.err == "");
    CHECK(alone.out == run("--summary=off " + build + "/examples/layers 8 1", "64M").out);
}

TEST_CASE("examples: train.py trains with the shim and without, and says where it is") {
    const std::string build = support::build_dir();
    const std::vector<std::string> script{"python3", "-B",  "examples/train.py", "--layers", "20",
                                          "--width", "256", "--steps",           "3"};
    std::map<std::string, std::string> environment{{"PYTHONPATH", "tools/package/python:tests/cli/stand_in"},
                                                   {"LD_LIBRARY_PATH", build + "/sim"},
                                                   {"SIMCUDA_MEMORY", "64M"}};
    const support::Result alone = support::run(script, environment);
    INFO(alone.err);
    REQUIRE(alone.status == 0);
    CHECK(alone.out == "step 0: loss 210.000000\nstep 1: loss 210.000000\nstep 2: loss 210.000000\n");

    const std::string trace = support::scratch_file("train.lmstrace");
    environment.insert({{"LD_PRELOAD", support::preloaded_shim()},
                        {"LMS_DRIVER", build + "/sim/libcuda.so.1"},
                        {"LMS_THRESHOLD", "16K"},
                        {"SIMCUDA_GRANULARITY", "64K"},
                        {"LMS_TRACE", trace}});
    environment["SIMCUDA_MEMORY"] = "4M";
    const support::Result shimmed = support::run(script, environment);
    INFO(shimmed.err);
    CHECK(shimmed.status == 0);
    CHECK(shimmed.out.starts_with(alone.out));
    CHECK(shimmed.out.find("MiB came in") != std::string::npos);
    const support::Result report = support::run({build + "/lms", "report", "--json", trace});
    const auto told = nlohmann::json::parse(report.out, nullptr, false);
    REQUIRE(told.is_object());
    REQUIRE(told["regions"].size() == 3);
    for (const auto& region : told["regions"]) CHECK(region["times"] == 3);
}

// make gpu-frameworks: the runner's logic over a stub, and that each program says cleanly whether it can run.
#include <doctest/doctest.h>

#include "tests/gpu/runs.h"

using runs::Outcome;

namespace {

// The stub under the names of some programs, wrong in one way.
Outcome frameworks_with_fault(const std::string& fault,
                              const std::vector<std::string>& names = {"torch_train.py"}) {
    Scratch scratch;
    const std::string build = runs::fake_build(scratch);
    for (const std::string& name : names) runs::copy_stub(scratch.path("scripts/" + name));
    std::vector<std::string> arguments = {"--build",   build, "--scripts",     scratch.path("scripts"),
                                          "--repeats", "2",   "--run-seconds", "5"};
    // One variant is enough for what goes wrong.
    if (!fault.empty()) arguments.insert(arguments.end(), {"--only", "torch"});
    return runs::run(scratch, "frameworks", arguments,
                     {{"STUB_FAULT", fault}, {"STUB_COUNTER", scratch.path("counter")}});
}

void check_faulty_framework(const std::string& fault, const std::string& label,
                            const std::string& beginning) {
    CAPTURE(fault);
    const Outcome outcome = frameworks_with_fault(fault);
    CHECK(outcome.status == 1);
    CHECK_MESSAGE(outcome.verdict("torch", label).starts_with(beginning), outcome.out, outcome.err);
}

double number(const Outcome& outcome, const std::string& variant, const std::string& label, const char* key) {
    for (const auto& row : outcome.results.at("runs")) {
        if (row.at("variant") == variant && row.at("case") == label) return row.at(key);
    }
    return -1;
}

}  // namespace

TEST_CASE("frameworks: everything fits, and 1.5, 2 and 3 times too much") {
    const Outcome outcome =
        frameworks_with_fault("", {"torch_train.py", "torch_ddp_gloo.py", "jax_train.py"});
    REQUIRE_MESSAGE(outcome.status == 0, outcome.out, outcome.err);
    for (const char* variant :
         {"torch", "torch, cudaMallocAsync", "jax", "torch, DDP with gloo, 2 processes"}) {
        CAPTURE(variant);
        CHECK(outcome.verdict(variant, "without the shim") == "reference");
        CHECK(outcome.verdict(variant, "fits") == "same");
        CHECK(number(outcome, variant, "fits", "slowdown") == doctest::Approx(1));
        for (const double factor : {1.5, 2.0, 3.0}) {
            const std::string label = factor == 1.5 ? "1.5x" : factor == 2 ? "2x" : "3x";
            CAPTURE(label);
            CHECK(outcome.verdict(variant, label) == "same");
            CHECK(number(outcome, variant, label, "factor_reached") == doctest::Approx(factor).epsilon(0.15));
            CHECK(number(outcome, variant, label, "slowdown") == doctest::Approx(2));
            CHECK(number(outcome, variant, label, "gbps_in") > 0);
        }
    }
    CHECK(number(outcome, "torch, DDP with gloo, 2 processes", "2x", "processes") == 2);
    CHECK(number(outcome, "torch", "2x", "processes") == 1);
    CHECK(outcome.verdict("torch", "2x, soft limit") == "same");
    CHECK(outcome.verdict("torch, cudaMallocAsync", "2x, soft limit") == "");
    CHECK(outcome.notes("torch: without the shim, the same bits every time"));
    CHECK(outcome.notes("not run: cupy: cupy_ops.py is not there"));
}

TEST_CASE("frameworks: what is wrong is seen") {
    check_faulty_framework("other results", "2x", "other results: losses differ by");
    check_faulty_framework("crash", "1.5x", "status 3: stub: out of memory");
    check_faulty_framework("hang", "3x", "stopped after 5 s");
    check_faulty_framework("nothing moves", "2x", "nothing moved");
    check_faulty_framework("always moves", "fits", "moved though everything fits");
    check_faulty_framework("no shim", "fits", "the shim saw no allocation");
}

TEST_CASE("frameworks: results are held to the framework's own determinism") {
    const Outcome noisy = frameworks_with_fault("noisy");
    CHECK_MESSAGE(noisy.status == 0, noisy.out, noisy.err);
    CHECK(noisy.verdict("torch", "2x") == "same, as far as the framework's own");
    CHECK(noisy.notes("torch: without the shim, losses differ by up to 1.0e-06"));
    check_faulty_framework("noisy, other results", "2x", "other results");
}

TEST_CASE("frameworks: a framework that is missing is said so, and none at all") {
    const Outcome outcome = frameworks_with_fault("missing");
    CHECK(outcome.status == 1);
    CHECK(outcome.notes("not run: torch: stub: not installed"));
    CHECK(outcome.err.find("gpu-frameworks: nothing was run") != std::string::npos);
}

TEST_CASE("frameworks: each program says whether it can run here") {
    for (const auto& entry : std::filesystem::directory_iterator("tests/gpu/frameworks")) {
        const std::string name = entry.path().filename();
        if (name == "result.py" || name == "torch_common.py" || !name.ends_with(".py")) continue;
        CAPTURE(name);
        const support::Result result = support::run({"python3", "-B", entry.path(), "--probe"});
        CHECK_MESSAGE(result.status == 0, result.err);
        REQUIRE(result.out.starts_with("RESULT {\"available\": "));
        CHECK(nlohmann::json::parse(result.out.substr(7)).size() == 2);
    }
}

// make gpu-check: what it does with programs under the shim on the simulated GPU, and that it sees what is
// wrong.
#include <doctest/doctest.h>

#include "tests/gpu/runs.h"

using runs::Outcome;

namespace {

// The stub as the program vector_add, wrong in one way.
Outcome with_fault(const std::string& fault) {
    Scratch scratch;
    const std::string build = runs::fake_build(scratch);
    runs::copy_stub(build + "/apps/vector_add");
    return runs::run(scratch, "check", {"--build", build, "--only", "vector_add"}, {{"STUB_FAULT", fault}});
}

void check_faulty(const std::string& fault, const std::string& label, const std::string& verdict) {
    CAPTURE(fault);
    const Outcome outcome = with_fault(fault);
    CHECK(outcome.status == 1);
    CHECK_MESSAGE(outcome.verdict("vector_add", label) == verdict, outcome.out, outcome.err);
}

}  // namespace

TEST_CASE("check: programs under the shim are as without it, and data moves") {
    Scratch scratch;
    std::vector<std::string> arguments = {"--build", support::build_dir()};
    for (const char* name :
         {"vector_add", "patterns", "linked_list", "malloc_async", "per_thread", "own_vmm", "cudnn_conv"}) {
        arguments.insert(arguments.end(), {"--only", name});
    }
    const Outcome outcome = runs::run(scratch, "check", arguments);
    CHECK_MESSAGE(outcome.status == 0, outcome.out, outcome.err);
    CHECK(outcome.results.at("gpu") == "Simulated GPU");
    CHECK(outcome.results.at("simulated") == true);
    for (const char* name : {"vector_add", "linked_list", "malloc_async", "per_thread", "own_vmm", "patterns",
                             "patterns, async, threads"}) {
        CAPTURE(name);
        CHECK(outcome.verdict(name, "fits") == "same");
        CHECK(outcome.verdict(name, "2x") == "same");
    }
    CHECK(outcome.verdict("linked_list", "2x, safety strict") == "same");
    CHECK(outcome.verdict("patterns, threads", "2x, safety args") == "same");
    CHECK(outcome.verdict("patterns", "2x, policy lms") == "same");
    for (const auto& row : outcome.results.at("checks")) {
        if (row.at("case") == "fits") continue;
        CAPTURE(row.dump());
        const auto count = [&](const char* name) { return row.at("stats").at(name).get<std::uint64_t>(); };
        CHECK(count("bytes_in") + count("in_place_launches") > 0);
        CHECK(row.at("factor_reached").get<double>() > 1.3);
    }
    CHECK(outcome.notes("not run: cudnn_conv: cuDNN refuses a driver that is not NVIDIA's"));
    CHECK(outcome.notes("not run: overhead"));
    CHECK(scratch.get("results/simulated-gpu-check.md")
              .starts_with("# Programs with and without the shim: Simulated GPU\n\n**Simulated.**"));
    const std::string log = scratch.get("results/simulated-gpu-check.log");
    CHECK(log.find("LD_PRELOAD=liblmsshim.so") != std::string::npos);
    CHECK(log.find("---- stdout\nok\n") != std::string::npos);
}

TEST_CASE("check: what is wrong is seen") {
    const Outcome good = with_fault("");
    CHECK_MESSAGE(good.status == 0, good.out, good.err);
    CHECK(good.verdict("vector_add", "2x") == "same");
    check_faulty("other results", "2x", "other output");
    check_faulty("crash", "2x", "status 3: stub: out of memory");
    check_faulty("nothing moves", "2x", "nothing moved");
    check_faulty("always moves", "fits", "moved though everything fits");
    check_faulty("no shim", "fits", "the shim saw no allocation");
}

TEST_CASE("check: a part leaves the results of the rest") {
    Scratch scratch;
    const std::string build = runs::fake_build(scratch);
    Outcome outcome;
    for (const char* name : {"vector_add", "reduce", "vector_add"}) {
        runs::copy_stub(build + "/apps/" + name);
        outcome = runs::run(scratch, "check", {"--build", build, "--only", name});
        CHECK_MESSAGE(outcome.status == 0, outcome.out, outcome.err);
    }
    CHECK(outcome.results.at("checks").size() == 4);
    CHECK(outcome.results.at("summary") == "4 of 4 as they must be");
    CHECK(outcome.verdict("reduce", "2x") == "same");
    CHECK(outcome.verdict("vector_add", "2x") == "same");
}

TEST_CASE("check: a program written elsewhere, which may print what changes with every run") {
    const auto verdict = [](const std::string& fault, const std::string& label) {
        Scratch scratch;
        const std::string build = runs::fake_build(scratch);
        runs::copy_stub(scratch.path("elsewhere/saxpy"));
        const Outcome outcome =
            runs::run(scratch, "check",
                      {"--build", build, "--program", "'" + scratch.path("elsewhere/saxpy") + "' 1000"},
                      {{"STUB_FAULT", fault}});
        CHECK(outcome.results.at("checks").size() == 4);
        return outcome.verdict("saxpy", label);
    };
    CHECK(verdict("", "3x") == "same");
    CHECK(verdict("clock", "2x") == "same but for 1 lines that change with every run");
    CHECK(verdict("other results", "2x") == "other output");
    CHECK(verdict("other results", "fits") == "same");
}

TEST_CASE("check: a program that is not built, and none at all") {
    Scratch scratch;
    const std::string build = runs::fake_build(scratch);
    const Outcome outcome = runs::run(scratch, "check", {"--build", build, "--only", "vector_add"});
    CHECK(outcome.status == 1);
    CHECK(outcome.notes("not run: vector_add, shared runtime"));
    CHECK(outcome.err.find("gpu-check: nothing was checked") != std::string::npos);
    CHECK(runs::run(scratch, "check", {"--build", scratch.path("nowhere")}).status == 1);
}

TEST_CASE("check: the simulated GPU is never taken for a real one") {
    Scratch scratch;
    const Outcome into_docs =
        runs::run(scratch, "check", {"--build", support::build_dir(), "--out", scratch.path("docs/gpu")});
    CHECK(into_docs.status == 1);
    CHECK(into_docs.err.find("that folder is for real GPUs") != std::string::npos);
    const support::Result without_sim = support::run({"python3", "-B", "tests/gpu/check.py", "--build",
                                                      support::build_dir(), "--out", scratch.path("results")},
                                                     {{"LD_LIBRARY_PATH", support::build_dir() + "/sim"}});
    CHECK(without_sim.status == 1);
    CHECK(without_sim.err.find("the GPU that is here is the simulated one") != std::string::npos);
}

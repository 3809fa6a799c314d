// LMS_SOFT_LIMIT with a program whose allocator caches, as those of frameworks do.
#include <doctest/doctest.h>

#include "tests/e2e/programs.h"

using namespace e2e;

TEST_CASE("soft limit: a caching allocator gives back what is dead, and nothing has to move") {
    const std::vector<std::string> program = {"caching", "16"};
    // The dead blocks fill the GPU, and are moved out like any others.
    Run run = run_shimmed(program, "8M");
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.stats.at("refusals") == 0);
    CHECK(run.stats.at("evictions") > 0);

    run = run_shimmed(program, "8M", {{"LMS_SOFT_LIMIT", "7M"}});
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == "ok\n");
    CHECK(run.stats.at("refusals") > 0);
    CHECK(run.stats.at("evictions") + run.stats.at("fills") == 0);
}

TEST_CASE("soft limit: a program that needs more than it gets it") {
    const Run run = run_shimmed({"caching", "16"}, "4M", {{"LMS_SOFT_LIMIT", "3M"}});
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == "ok\n");
    CHECK(run.stats.at("refusals") > 1);
    CHECK(run.err.find("LMS_SOFT_LIMIT") == std::string::npos);
    CHECK(run.stats.at("evictions") > 0);
}

TEST_CASE("soft limit: a program that never tries again meets it") {
    const Run run = run_shimmed({"vector_add", "16"}, "8M", {{"LMS_SOFT_LIMIT", "7M"}});
    CHECK(run.status == 1);
    CHECK(run.err.find("cudaErrorMemoryAllocation") != std::string::npos);
    CHECK_MESSAGE(run.err.find("the program ended with 1 after LMS_SOFT_LIMIT had an allocation of ") !=
                      std::string::npos,
                  run.err);
}

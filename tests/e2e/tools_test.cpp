// Tools that stand between a program and the driver beside the shim.
#include <doctest/doctest.h>

#include <sstream>

#include "tests/e2e/programs.h"

using namespace e2e;

TEST_CASE("tools: behind one that takes the driver's functions first, programs run right and memory moves") {
    const std::string tool = support::build_dir() + "/e2e/counting.so";
    const std::string counts = support::scratch_file("counts");
    const support::Result bare = run_bare({"vector_add", "16"}, "64M");
    for (const std::string host_mapping : {"0", "1"}) {
        CAPTURE(host_mapping);
        const Run run =
            run_shimmed({"vector_add", "16"}, "4M",
                        {{"SIMCUDA_HOST_VMM", host_mapping}, {"LD_PRELOAD", tool}, {"TOOL_COUNTS", counts}});
        CAPTURE(run.err);
        CHECK(run.status == 0);
        CHECK(run.out == bare.out);
        CHECK(run.violations == 0);
        CHECK(run.stats.at("evictions") > 100);
        std::istringstream told(support::read_file(counts));
        std::uint64_t launches = 0, allocations = 0, frees = 0;
        told >> launches >> allocations >> frees;
        CHECK(launches > 0);
        CHECK(launches == run.stats.at("launches"));
        CHECK(allocations == run.stats.at("allocations"));
        CHECK(frees == run.stats.at("frees"));
    }
}

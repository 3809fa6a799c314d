// Memory that nobody announced: buffers that kernels reach through pointers in memory, on a GPU of half and a
// quarter of what the programs need. Each checks every byte; what would be lost to a race is lost under some
// seed.
#include <doctest/doctest.h>

#include "tests/e2e/programs.h"

using namespace e2e;

namespace {

struct Places {
    std::vector<std::string> levels;
    std::vector<std::string> host_mappings;
    std::vector<std::string> memories;
};
const std::vector<std::string> kAllLevels = {"args", "opaque", "strict"};
const std::vector<std::string> kHalfAndQuarter = {"4M", "2M"};
// Where each launch fits.
const Places kKnown = {kAllLevels, {"1", "0"}, kHalfAndQuarter};
const Places kLarge = {kAllLevels, {"1"}, kHalfAndQuarter};
// Pointers that kernels have written are not followed.
const Places kHidden = {{"opaque", "strict"}, {"1"}, kHalfAndQuarter};

// Works through 8 MiB, with the seed as the program's own, too. Returns what the last run counted.
Run check(const std::string& name, const Places& places) {
    Run run;
    int seed = 0;
    for (const std::string& level : places.levels) {
        for (const std::string& host_mapping : places.host_mappings) {
            for (const std::string& memory : places.memories) {
                for (int i = 0; i < 2; ++i) {
                    const std::string drawn = std::to_string(++seed);
                    CAPTURE(level);
                    CAPTURE(host_mapping);
                    CAPTURE(memory);
                    CAPTURE(drawn);
                    run = run_shimmed(
                        {name, "8", drawn}, memory,
                        {{"LMS_SAFETY", level}, {"SIMCUDA_HOST_VMM", host_mapping}, {"SIMCUDA_SEED", drawn}});
                    CHECK_MESSAGE(run.status == 0, run.err);
                    CHECK(run.out == "ok\n");
                    CHECK(run.stats.at("evictions") + run.stats.at("in_place_launches") > 0);
                }
            }
        }
    }
    return run;
}

}  // namespace

TEST_CASE("hidden: lists and trees built on the host and uploaded") {
    check("host_lists", kKnown);
}

TEST_CASE("hidden: tables of pointers, to the beginning, the middle and the end of buffers") {
    check("pointer_tables", kLarge);
    check("pointer_tables", {kAllLevels, {"0"}, {"4M"}});
}

TEST_CASE("hidden: pointers that kernels wrote, read and written through while others move") {
    check("hidden_pointers", kHidden);
}

TEST_CASE("hidden: lists linked on the device, larger than the GPU") {
    const Run run = check("linked_list", kHidden);
    CHECK(run.stats.at("in_place_launches") > 0);
}

TEST_CASE("hidden: pointers in variables") {
    check("symbols", kKnown);
}

TEST_CASE(
    "guards: the kernel that reaches evicted memory it does not name is named, and the verdict says so") {
    const Run run = run_shimmed({"hidden_pointers", "8", "1"}, "4M", {{"LMS_CHECK", "1"}});
    CHECK(run.status == 1);
    CHECK(run.err.find("cudaErrorIllegalAddress") != run.err.npos);
    const auto named = run.err.find("lms: check: ");
    REQUIRE_MESSAGE(named != run.err.npos, run.err);
    const std::string line = run.err.substr(named, run.err.find('\n', named) - named);
    CAPTURE(line);
    CHECK((line.find("mix(") != line.npos || line.find("count(") != line.npos));
    CHECK(line.find("(error 700)") != line.npos);
    CHECK(run.err.find("lms: check: the program failed") != run.err.npos);
}

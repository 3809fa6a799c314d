// Weights that are read again and again are copied out once, and what is written goes out with its contents.
#include <doctest/doctest.h>

#include "tests/e2e/programs.h"

using namespace e2e;

namespace {

constexpr std::uint64_t kWeights = 4 << 20;
constexpr const char* kHalf = "2M";

Run check_weights(const std::vector<std::string>& more, const Environment& environment) {
    std::vector<std::string> arguments{"weights", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Run run = run_shimmed(arguments, kHalf, environment);
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == "ok\n");
    CHECK(run.violations == 0);
    return run;
}

}  // namespace

TEST_CASE("weights: what is only read is copied out once") {
    for (const char* host_mapping : {"1", "0"}) {
        for (const char* policy : {"lru", "next-use"}) {
            CAPTURE(host_mapping);
            CAPTURE(policy);
            const Run run =
                check_weights({"9"}, {{"SIMCUDA_HOST_VMM", host_mapping}, {"LMS_POLICY", policy}});
            CHECK(run.stats.at("bytes_out") <= kWeights);
            CHECK(run.stats.at("bytes_in") > 2 * kWeights);
        }
    }
}

TEST_CASE("weights: what is only read is copied out each time with LMS_RETAIN=0") {
    const Run run = check_weights({"9"}, {{"LMS_RETAIN", "0"}});
    CHECK(run.stats.at("bytes_out") > 2 * kWeights);
}

TEST_CASE("weights: what is written now and then loses nothing") {
    int seed = 0;
    for (const char* how : {"alias", "both", "copy", "graph"}) {
        for (const char* host_mapping : {"1", "0"}) {
            // What is not named cannot be reached there.
            if (how == std::string("alias") && host_mapping == std::string("0")) continue;
            const std::string drawn = std::to_string(++seed);
            CAPTURE(how);
            CAPTURE(host_mapping);
            const Run run =
                check_weights({"18", how}, {{"SIMCUDA_HOST_VMM", host_mapping}, {"SIMCUDA_SEED", drawn}});
            CHECK(run.stats.at("bytes_out") < run.stats.at("bytes_in"));
        }
    }
}

TEST_CASE("weights: guards find what is evicted as clean to be so") {
    const Run run = check_weights({"9"}, {{"LMS_CHECK", "1"}});
    CHECK(run.err.find("came back intact") != std::string::npos);
    CHECK(run.err.find("read-only") == std::string::npos);
}

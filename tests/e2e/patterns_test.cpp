// Every byte of many buffers, evicted many times over from several streams and threads.
#include <doctest/doctest.h>

#include "tests/e2e/programs.h"

using namespace e2e;

namespace {

void check_patterns(const std::vector<std::string>& extra, const Environment& environment) {
    for (const std::string seed : {"1", "2", "3"}) {
        for (const std::string host_mapping : {"1", "0"}) {
            CAPTURE(seed);
            CAPTURE(host_mapping);
            std::vector<std::string> arguments = {"patterns", "--bytes", "600000", "--steps",
                                                  "60",       "--seed",  seed};
            arguments.insert(arguments.end(), extra.begin(), extra.end());
            Environment all = environment;
            all["SIMCUDA_SEED"] = seed;
            all["SIMCUDA_HOST_VMM"] = host_mapping;
            const Run run = run_shimmed(arguments, "6M", all);
            CHECK_MESSAGE(run.status == 0, run.out, run.err);
            CHECK(run.out == "ok\n");
            CHECK(run.stats.at("evictions") > 20);
        }
    }
}

const std::vector<std::string> kOneThread = {"--buffers", "16"};
const std::vector<std::string> kThreads = {"--buffers", "6", "--threads", "3"};

std::vector<std::string> with_async(std::vector<std::string> arguments) {
    arguments.push_back("--async");
    return arguments;
}

}  // namespace

TEST_CASE("patterns: one stream") {
    check_patterns(kOneThread, {});
}
TEST_CASE("patterns: three threads, a stream each") {
    check_patterns(kThreads, {});
}
TEST_CASE("patterns: stream-ordered allocation") {
    check_patterns(with_async(kOneThread), {});
}
TEST_CASE("patterns: stream-ordered allocation in three threads") {
    check_patterns(with_async(kThreads), {});
}
TEST_CASE("patterns: strict safety") {
    check_patterns(kThreads, {{"LMS_SAFETY", "strict"}});
}
TEST_CASE("patterns: args safety") {
    check_patterns(kThreads, {{"LMS_SAFETY", "args"}});
}
TEST_CASE("patterns: IBM's policy, from half of the budget") {
    check_patterns(kThreads, {{"LMS_POLICY", "lms"}, {"LMS_FRAC", "0.5"}});
}
TEST_CASE("patterns: everything that is not needed goes out at once") {
    check_patterns(kOneThread, {{"LMS_FRAC", "0"}});
}
TEST_CASE("patterns: the driver is slow to grant access") {
    check_patterns(kOneThread, {{"SIMCUDA_NOT_READY", "5"}});
}
TEST_CASE("patterns: a traced program") {
    check_patterns(kThreads, {{"LMS_TRACE", support::scratch_file("trace")}});
}

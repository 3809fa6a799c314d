// Programs that have nothing to do with CUDA, with the shim preloaded.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/e2e/programs.h"

TEST_CASE("host: shells and what they start show no trace of the shim, whatever its settings") {
    const std::string line =
        "ls -d tests; git --version >/dev/null; (exit 3); echo $?; python3 -c 'print(7)' | cat";
    const support::Result bare = support::run({"sh", "-c", line});
    const std::string stats = support::scratch_file("stats");
    const std::string trace = support::scratch_file("trace");
    const std::string log = support::scratch_file("log");
    const support::Result run = support::run({"sh", "-c", line}, {{"LD_PRELOAD", support::preloaded_shim()},
                                                                  {"LMS_STATS", stats},
                                                                  {"LMS_TRACE", trace},
                                                                  {"LMS_LOG", "debug:" + log},
                                                                  {"LMS_FRAC", "2"},
                                                                  {"LMS_DRIVER", "/no/driver"},
                                                                  {"LMS_POLICY", "/no/policy.so"}});
    CHECK(bare.out == "tests\n3\n7\n");
    CHECK(run.status == bare.status);
    CHECK(run.out == bare.out);
    CHECK(run.err == bare.err);
    for (const std::string& file : {stats, trace, log}) CHECK_FALSE(std::filesystem::exists(file));
}

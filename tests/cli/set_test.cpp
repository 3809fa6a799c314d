// lms set and lms trace: tests/cli/set.py runs programs and changes them.
#include <doctest/doctest.h>

#include "tests/support/process.h"

TEST_CASE(
    "set: a limit, a policy, a log level, pauses and traces of programs that run and know nothing of it") {
    const std::string build = support::build_dir();
    const support::Result result =
        support::run({"python3", "-B", "tests/cli/set.py", support::preloaded_shim(),
                      build + "/sim/libcuda.so.1", build + "/lms"});
    INFO(result.out, result.err);
    CHECK(result.status == 0);
}

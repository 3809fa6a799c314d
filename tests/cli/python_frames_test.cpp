// Files and lines of Python in traces: tests/cli/python_frames.py.
#include <doctest/doctest.h>

#include "tests/support/process.h"

TEST_CASE("python frames: who allocated is told by file and line, with the GIL and without") {
    const std::string build = support::build_dir();
    const support::Result result =
        support::run({"python3", "-B", "tests/cli/python_frames.py", support::preloaded_shim(),
                      build + "/sim/libcuda.so.1", build + "/lms"});
    INFO(result.out, result.err);
    CHECK(result.status == 0);
}

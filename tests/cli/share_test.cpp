// Programs that share a simulated GPU, as lms top and lms set have them: tests/cli/share.py.
#include <doctest/doctest.h>

#include "tests/support/process.h"

TEST_CASE("share: lms top shows all tenants of a GPU and changes nothing, lms set changes their terms") {
    const std::string build = support::build_dir();
    const support::Result result =
        support::run({"python3", "-B", "tests/cli/share.py", support::preloaded_shim(),
                      build + "/sim/libcuda.so.1", build + "/lms"});
    INFO(result.out, result.err);
    CHECK(result.status == 0);
}

#include "tools/lms/demo.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>

#include "tools/lms/child.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/places.h"
#include "tools/lms/to_stderr.h"

namespace lms::tool {

int demo(const DemoOptions& options) {
    const std::string script = find_demo();
    if (script.empty()) {
        to_stderr("lms: the demo is not there: `make demo` builds it\n");
        return kCannotSetUp;
    }
    std::vector<std::string> command = {"sh", script, "--steps", std::to_string(options.steps)};
    command.insert(command.end(), options.texts.begin(), options.texts.end());
    to_stderr("lms: cannot run sh: {}\n", std::strerror(become(command)));
    return kCannotSetUp;
}

}  // namespace lms::tool

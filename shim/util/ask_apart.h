// A question put to another program, because asking may end the process that asks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shim/util/bounds.h"

namespace lms::util {

// Runs `command` (a path and its arguments) with this process's environment, less all that loads or sets the
// shim and with `variables` instead; returns the first line that it writes, empty if it ends without one, and
// a line that says so where it has to be ended after `bound`. Nothing: it could not be started. Its standard
// streams are its own, and it is no child of this process: that hears nothing of its end. May throw
// std::bad_alloc.
std::optional<std::string> ask_apart(const std::vector<std::string>& command,
                                     const std::vector<std::pair<std::string, std::string>>& variables,
                                     std::chrono::milliseconds bound = bounds::kAskedApart);

}  // namespace lms::util

// A question put to another program, because asking may end the process that asks.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lms::util {

// Runs `command` (a path and its arguments) with this process's environment, less all that loads or sets the
// shim and with `variables` instead; returns the first line that it writes, empty if it ends, or is ended
// after 20 s, without one. Nothing: it could not be started. Its standard streams are its own. May throw
// std::bad_alloc.
std::optional<std::string> ask_apart(const std::vector<std::string>& command,
                                     const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace lms::util

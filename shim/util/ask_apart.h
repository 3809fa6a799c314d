// A question put to another program, because asking may end the process that asks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shim/util/bounds.h"

namespace lms::util {

// Runs `command`, a path and its arguments. Its environment is this process's, with `variables` in place of
// all that loads or sets the shim. Returns the first line that it writes; empty: it ended without one. After
// `bound` it is killed, and the line says so. Nothing: it could not be started. It has standard streams of
// its own and is no child of this process, which gets no signal of its end. May throw std::bad_alloc.
std::optional<std::string> ask_apart(const std::vector<std::string>& command,
                                     const std::vector<std::pair<std::string, std::string>>& variables,
                                     std::chrono::milliseconds bound = bounds::kAskedApart);

}  // namespace lms::util

// lms set: what is to be otherwise in a program that runs.
#pragma once

#include <string>
#include <vector>

namespace lms::tool {

// `changes`: "limit=4G", "policy=lru", "log=info", "pause", "resume". Returns the exit status: of what is
// wrong with them one line says so, and nothing is changed.
int set(int process, const std::vector<std::string>& changes);

}  // namespace lms::tool

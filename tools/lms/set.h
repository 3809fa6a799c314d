// lms set: what is to be otherwise in a program that runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shim/trace/live_page.h"

namespace lms::tool {

// `changes`: "limit=4G", "share=weight=2", "policy=lru", "log=info", "pause", "resume". Returns the exit
// status: of what is wrong with them one line says so, and nothing is changed.
int set(int process, const std::vector<std::string>& changes);

// Whether a process has acted upon what it was asked.
enum class Told { Done, Later, Never };
// Writes into the request of a process, and waits a moment until it has acted upon that; then `read`. Why it
// never will, or does so later, is told in the name of `command`.
Told tell_process(int process, const char* command, const std::function<void(trace::LiveRequest&)>& write,
                  const std::function<void(const trace::LiveRequest&)>& read = {});

}  // namespace lms::tool

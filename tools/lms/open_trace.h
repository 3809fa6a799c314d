// A trace for a command: what is wrong with it is said on stderr.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/lms/replay.h"
#include "tools/lms/trace_file.h"

namespace lms::tool {

// Null: it cannot be read at all.
std::unique_ptr<Trace> open_trace(const std::string& path, const char* command);

// Whether what is to be written there would take the trace's place.
bool is_the_trace(const std::string& output, const std::string& path);

// The value of a setting that the traced program had; empty: it had none.
std::string setting_of(const Trace& trace, const std::string& variable);

// What a replay of it begins with: its policy, and the links as they were measured.
ReplayWith replay_like(const Trace& trace);

// By each of the policies, of all its GPUs together, each with that budget, or the one that it had. Otherwise
// `with`.
std::vector<Replayed> replay_all(const Trace& trace, const std::vector<std::string>& policies,
                                 ReplayWith with, std::optional<std::uint64_t> budget_bytes);

}  // namespace lms::tool

// The live pages of processes, as the commands pass them on.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "shim/trace/live_page.h"

namespace lms::tool {

using Pages = std::vector<std::unique_ptr<trace::LivePage>>;

// The policy that decides in a process, as it began or as `lms set` changed it.
std::string policy_of(const trace::LivePage& page);
// What is told of one process: its number and program, what `lms set` changes, then all of its page.
nlohmann::ordered_json process_json(const trace::LivePage& page);
// As text; what of a program's name is not UTF-8 is replaced.
std::string text_of(const nlohmann::ordered_json& json);

}  // namespace lms::tool

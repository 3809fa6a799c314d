// What all probes found, as JSON and as a page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace facts {

using Json = nlohmann::ordered_json;

// {"schema", "gpu", "simulated", "driver", "toolkit", "date", "host", "facts": [{"number", "name",
// "question", "how", "status": "ok" | "not supported" | "failed", "reason", "values": [...]}]}. A value has a
// name and either "text", or "value" and "unit", or "min", "median", "n" and "unit".
std::string page(const Json& report);

// "nvidia-h200" of "NVIDIA H200": the beginning of a file's name.
std::string slug(const std::string& gpu);

// The value of that name in the fact of that name, or null.
const Json* find_value(const Json& report, const std::string& fact, const std::string& value);

// The settings that give the simulated GPU this one's costs, a line of NAME=VALUE each; empty if the report
// has none of them.
std::string simulation_knobs(const Json& report);

}  // namespace facts

#include "tools/lms/show_settings.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "policy/host.h"
#include "shim/util/settings.h"
#include "tools/lms/to_stderr.h"

namespace lms::tool {

void show_settings(bool as_json) {
    std::vector<std::string> problems;
    Settings current = parse_settings([](const char* variable) { return getenv(variable); }, problems);
    if (std::string problem; policy::find(current.policy, problem) == nullptr) {
        problems.push_back(fmt::format("LMS_POLICY={}: {}; lru serves", current.policy, problem));
        current.policy = "lru";
    }
    auto json = nlohmann::ordered_json::array();
    for (const Setting& setting : settings_table()) {
        const std::string value = setting.show(current);
        if (as_json) {
            json.push_back(
                {{"variable", setting.variable},
                 {"option", fmt::format("--{}", setting.option)},
                 {"current", value.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(value)},
                 {"default", setting.fallback},
                 {"accepted", setting.accepted},
                 {"meaning", setting.meaning}});
        } else {
            fmt::print("{}={}\n    {}.\n    Accepted: {}. Default: {}.\n    Option of `lms run`: --{} {}\n",
                       setting.variable, value, setting.meaning, setting.accepted, setting.fallback,
                       setting.option, setting.value);
        }
    }
    if (as_json) fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    for (const std::string& problem : problems) to_stderr("lms: {}\n", problem);
    for (const std::string& problem : unknown_variables(environ)) to_stderr("lms: {}\n", problem);
}

}  // namespace lms::tool

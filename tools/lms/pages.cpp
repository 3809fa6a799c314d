#include "tools/lms/pages.h"

#include <nlohmann/json.hpp>

namespace lms::tool {

std::string policy_of(const trace::LivePage& page) {
    return page.request.policy[0] != '\0' ? page.request.policy : page.policy;
}

nlohmann::ordered_json process_json(const trace::LivePage& page) {
    nlohmann::ordered_json process{{"process", page.process}, {"program", page.program}};
    const std::uint64_t limit = page.request.limit_bytes;
    process["policy"] = policy_of(page);
    process["limit_bytes"] = limit == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(limit);
    process["paused"] = page.request.paused == 1;
    process.update(trace::to_json(page));
    return process;
}

std::string text_of(const nlohmann::ordered_json& json) {
    return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lms::tool

#include "tools/lms/pages.h"

#include <nlohmann/json.hpp>

namespace lms::tool {

nlohmann::ordered_json process_json(const trace::LivePage& page) {
    nlohmann::ordered_json process{{"process", page.process}, {"program", page.program}};
    process.update(trace::to_json(page));
    return process;
}

std::string text_of(const nlohmann::ordered_json& json) {
    return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lms::tool

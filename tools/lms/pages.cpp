#include "tools/lms/pages.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shim/util/units.h"
#include "tools/lms/analysis.h"
#include "tools/lms/printable.h"

namespace lms::tool {
namespace {

using Json = nlohmann::ordered_json;

// A line each.
std::vector<std::string> frames_of(const char (&site)[trace::LiveBuffer::kSiteBytes]) {
    std::vector<std::string> frames;
    std::string_view rest(site, std::find(site, std::end(site), '\0') - site);
    while (!rest.empty()) {
        const std::string& frame = frames.emplace_back(printable(rest.substr(0, rest.find('\n'))));
        rest.remove_prefix(std::min(rest.size(), frame.size() + 1));
    }
    return frames;
}

Json to_json(const MovingBuffer& buffer) {
    return {{"number", buffer.number},     {"gpu", buffer.device},          {"bytes", buffer.bytes},
            {"bytes_in", buffer.bytes_in}, {"bytes_out", buffer.bytes_out}, {"freed", buffer.freed},
            {"frames", buffer.frames}};
}

}  // namespace

std::vector<MovingBuffer> moving_buffers(const trace::LivePage& page) {
    std::vector<MovingBuffer> found;
    for (const trace::LiveBuffer& each : page.moving.buffers) {
        if (each.number == 0 || each.device >= trace::LivePage::kGpus) continue;
        found.push_back({each.number, each.device, each.bytes, each.bytes_in, each.bytes_out, each.freed != 0,
                         frames_of(each.call_site)});
    }
    std::ranges::stable_sort(found, std::ranges::greater{}, &MovingBuffer::moved);
    return found;
}

std::vector<std::string> places_of(const std::vector<MovingBuffer>& buffers) {
    std::vector<BufferGroup> named;
    for (const MovingBuffer& each : buffers) named.push_back({.frames = each.frames});
    name_places(named);
    std::vector<std::string> places;
    for (BufferGroup& each : named) places.push_back(std::move(each.call_site));
    return places;
}

std::string filled(std::uint64_t budget_bytes, std::uint64_t peak_allocated_bytes,
                   std::uint64_t most_beyond_bytes) {
    const bool was_less =
        most_beyond_bytes > peak_allocated_bytes - std::min(peak_allocated_bytes, budget_bytes);
    return util::format_bytes(budget_bytes) + (was_less ? " (at times less)" : "");
}

std::string policy_of(const trace::LivePage& page) {
    return printable(page.request.policy[0] != '\0' ? page.request.policy : page.policy);
}

Json process_json(const trace::LivePage& page) {
    Json process{{"process", page.process.number}, {"program", page.program}};
    const std::uint64_t limit = page.request.limit_bytes;
    process["policy"] = policy_of(page);
    process["limit_bytes"] = limit == 0 ? Json() : Json(limit);
    process["paused"] = page.request.paused == 1;
    process.update(trace::to_json(page));
    process["buffers"] = Json::array();
    for (const MovingBuffer& buffer : moving_buffers(page)) process["buffers"].push_back(to_json(buffer));
    return process;
}

std::string text_of(const Json& json) {
    return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lms::tool

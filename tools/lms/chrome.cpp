#include "tools/lms/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "shim/trace/demangle.h"
#include "tools/lms/trace_names.h"

namespace lms::tool {
namespace {

using namespace trace;
using Json = nlohmann::ordered_json;

// The format counts microseconds; a double holds nanoseconds of a machine up for a hundred days exactly.
double microseconds(std::uint64_t ns) {
    return static_cast<double>(ns) / 1000.0;
}

std::string text(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string hex(std::uint64_t number) {
    return fmt::format("{:#x}", number);
}

// What every kind of event is made of. Devices are the format's "processes", rows its "threads".
Json head(const char* phase, std::string_view name, const char* category, int device, std::uint64_t at_ns) {
    return {{"ph", phase}, {"name", name}, {"cat", category}, {"pid", device}, {"ts", microseconds(at_ns)}};
}

// Each once.
std::vector<std::uint32_t> buffers_of(std::span<const Touched> chunks) {
    std::vector<std::uint32_t> buffers;
    for (const Touched& each : chunks) buffers.push_back(each.allocation);
    std::ranges::sort(buffers);
    buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
    return buffers;
}

class Encoder {
  public:
    explicit Encoder(Tracks& tracks) : tracks_(tracks) {}

    std::string operator()(const Allocation& event) {
        Json json = instant("allocate", event.device, event.at_ns);
        json["args"] = {{"allocation", event.allocation},
                        {"address", hex(event.address)},
                        {"bytes", event.bytes},
                        {"call site", event.call_site}};
        return names_ + text(json);
    }

    std::string operator()(const Free& event) {
        Json json = instant("free", event.device, event.at_ns);
        json["args"] = {{"allocation", event.allocation}};
        return names_ + text(json);
    }

    std::string operator()(const StreamFree& event) {
        Json json = instant("free in stream order", event.device, event.at_ns);
        json["args"] = {{"allocation", event.allocation}, {"stream", hex(event.stream)}};
        return names_ + text(json);
    }

    std::string operator()(const Launch& event) {
        const bool own = event.kernel.empty();
        Json json = slice(event, own ? "copy or set" : demangled(std::string(event.kernel)),
                          own ? "transfer" : "launch", Group::Launches,
                          fmt::format("launches, stream {:#x}", event.stream));
        json["args"] = {{"stream", hex(event.stream)}, {"allocations", buffers_of(event.touched)}};
        if (event.copied.way != CopyWay::Unknown) {
            json["args"]["way"] = name_of(event.copied.way);
            json["args"]["bytes"] = event.copied.bytes;
        }
        return names_ + text(json);
    }

    std::string operator()(const Move& event) {
        const std::string_view direction = name_of(event.direction);
        Json json = slice(event, fmt::format("{}, buffer {}", direction, event.allocation), "move",
                          event.direction == Direction::In ? Group::MovesIn : Group::MovesOut,
                          fmt::format("moves {}", direction));
        json["args"] = {{"direction", direction}, {"allocation", event.allocation},  {"chunk", event.chunk},
                        {"bytes", event.bytes},   {"reason", name_of(event.reason)}, {"timed", event.timed}};
        return names_ + text(json);
    }

    std::string operator()(const Stall& event) {
        Json json = slice(event, name_of(event.cause), "stall", Group::Stalls, "stalls");
        json["args"] = {{"cause", name_of(event.cause)},
                        {"kernel", demangled(std::string(event.kernel))},
                        {"bytes", event.bytes},
                        {"allocations", buffers_of(event.lacked)}};
        return names_ + text(json);
    }

    std::string operator()(const Residency& event) {
        Json json = head("C", "managed bytes", "residency", event.device, event.at_ns);
        json["args"] = {{"resident", event.resident_bytes}, {"host", event.host_bytes}};
        return text(json);
    }

    std::string operator()(const KernelTime& event) {
        Json json = slice(event, demangled(std::string(event.kernel)), "kernel", Group::Kernels,
                          fmt::format("kernels, a sample of one in {}", event.one_in));
        return names_ + text(json);
    }

    std::string operator()(const CopyTime& event) {
        const std::string_view way = name_of(event.copied.way);
        Json json = slice(event, way, "copy", Group::Copies, fmt::format("the program's copies {}", way));
        json["args"] = {{"way", way}, {"bytes", event.copied.bytes}};
        return names_ + text(json);
    }

    std::string operator()(const LinkSpeeds& event) {
        Json json = head("C", "link speed", "link", event.device, event.at_ns);
        json["args"] = Json::object();
        if (event.in_bytes_per_s > 0) json["args"]["in"] = event.in_bytes_per_s;
        if (event.out_bytes_per_s > 0) json["args"]["out"] = event.out_bytes_per_s;
        return text(json);
    }

    // It is of no GPU; the first one's rows are where it is looked for.
    std::string operator()(const Region& event) {
        const std::string row_name = fmt::format("regions, thread {}", event.thread);
        Json json = head("X", event.name, "region", 0, event.begin_ns);
        json["dur"] = microseconds(event.end_ns - event.begin_ns);
        json["tid"] = row(0, Group::Regions, row_name, event.begin_ns, event.end_ns);
        return names_ + text(json);
    }

    std::string operator()(const ProgramWait& event) {
        Json json = head("X", "the program waits for GPUs", "wait", 0, event.begin_ns);
        json["dur"] = microseconds(event.end_ns - event.begin_ns);
        json["tid"] = row(0, Group::Regions, "waits of the program's own", event.begin_ns, event.end_ns);
        return names_ + text(json);
    }

    std::string operator()(const Unmanaged& event) {
        Json json = head("C", "unmanaged bytes", "unmanaged", event.device, event.at_ns);
        json["args"] = {{"unmanaged", event.bytes}};
        return text(json);
    }

    std::string operator()(const Gpu&) { return {}; }
    std::string operator()(const Dropped&) { return {}; }
    std::string operator()(const WorkOver&) { return {}; }

  private:
    // Rows stand in this order.
    enum class Group : std::uint32_t {
        Regions,
        Allocations,
        Launches,
        Kernels,
        Copies,
        MovesIn,
        MovesOut,
        Stalls
    };

    Json instant(const char* name, int device, std::uint64_t at_ns) {
        Json json = head("i", name, "allocation", device, at_ns);
        json["s"] = "t";  // drawn in its row only
        json["tid"] = row(device, Group::Allocations, "allocations", at_ns, at_ns);
        return json;
    }

    template <typename Slice>
    Json slice(const Slice& event, std::string_view name, const char* category, Group group,
               const std::string& row_name) {
        Json json = head("X", name, category, event.device, event.begin_ns);
        json["dur"] = microseconds(event.end_ns - event.begin_ns);
        json["tid"] = row(event.device, group, row_name, event.begin_ns, event.end_ns);
        return json;
    }

    std::uint32_t row(int device, Group group, const std::string& row_name, std::uint64_t begin_ns,
                      std::uint64_t end_ns) {
        const Tracks::Place place = tracks_.place(device, row_name, begin_ns, end_ns);
        if (place.is_new) {
            constexpr std::uint32_t kMostRows = 1000;
            meta("process_name", device, place.row, {{"name", fmt::format("GPU {}", device)}});
            meta("process_sort_index", device, place.row, {{"sort_index", device}});
            meta("thread_name", device, place.row, {{"name", row_name}});
            meta("thread_sort_index", device, place.row,
                 {{"sort_index", static_cast<std::uint32_t>(group) * kMostRows + place.row}});
        }
        return place.row;
    }

    void meta(const char* what, int device, std::uint32_t row, const Json& arguments) {
        names_ += text({{"ph", "M"}, {"name", what}, {"pid", device}, {"tid", row}, {"args", arguments}});
        names_ += ",\n";
    }

    Tracks& tracks_;
    std::string names_;  // of new rows, each followed by a comma
};

}  // namespace

std::string encode(const Event& event, Tracks& tracks) {
    return std::visit(Encoder(tracks), event);
}

}  // namespace lms::tool

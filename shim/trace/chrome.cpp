#include "shim/trace/chrome.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "shim/trace/demangle.h"

namespace lms::trace {
namespace {

using Json = nlohmann::ordered_json;

// By the enumerations' order.
constexpr std::string_view kDirectionNames[] = {"in", "out"};
constexpr std::string_view kMoveReasons[] = {"needed", "make room"};
constexpr std::string_view kStallReasons[] = {"launch waits for its buffers"};

template <std::size_t Count, typename Enumeration>
constexpr std::string_view named(const std::string_view (&names)[Count], Enumeration value) {
    return names[static_cast<std::size_t>(value)];
}

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

    std::string operator()(const Launch& event) {
        Json json = slice(event, demangled(std::string(event.kernel)), "launch",
                          fmt::format("launches, stream {:#x}", event.stream));
        json["args"] = {{"stream", hex(event.stream)}, {"allocations", event.allocations}};
        return names_ + text(json);
    }

    std::string operator()(const Move& event) {
        const std::string_view direction = named(kDirectionNames, event.direction);
        Json json = slice(event, fmt::format("{}, buffer {}", direction, event.allocation), "move",
                          fmt::format("moves {}", direction));
        json["args"] = {{"direction", direction},
                        {"allocation", event.allocation},
                        {"chunk", event.chunk},
                        {"bytes", event.bytes},
                        {"reason", named(kMoveReasons, event.reason)}};
        return names_ + text(json);
    }

    std::string operator()(const Stall& event) {
        const std::string_view reason = named(kStallReasons, event.reason);
        Json json = slice(event, reason, "stall", "stalls");
        json["args"] = {{"reason", reason}};
        return names_ + text(json);
    }

    std::string operator()(const Residency& event) {
        Json json = head("C", "managed bytes", "residency", event.device, event.at_ns);
        json["args"] = {{"resident", event.resident_bytes}, {"host", event.host_bytes}};
        return text(json);
    }

  private:
    Json instant(const char* name, int device, std::uint64_t at_ns) {
        Json json = head("i", name, "allocation", device, at_ns);
        json["s"] = "t";  // drawn in its row only
        json["tid"] = row(device, "allocations", at_ns, at_ns);
        return json;
    }

    template <typename Slice>
    Json slice(const Slice& event, std::string_view name, const char* category, const std::string& group) {
        Json json = head("X", name, category, event.device, event.begin_ns);
        json["dur"] = microseconds(event.end_ns - event.begin_ns);
        json["tid"] = row(event.device, group, event.begin_ns, event.end_ns);
        return json;
    }

    std::uint32_t row(int device, const std::string& group, std::uint64_t begin_ns, std::uint64_t end_ns) {
        const Tracks::Place place = tracks_.place(device, group, begin_ns, end_ns);
        if (place.is_new) {
            name("process_name", device, place.row, fmt::format("GPU {}", device));
            name("thread_name", device, place.row, group);
        }
        return place.row;
    }

    void name(const char* what, int device, std::uint32_t row, const std::string& name) {
        names_ +=
            text({{"ph", "M"}, {"name", what}, {"pid", device}, {"tid", row}, {"args", {{"name", name}}}});
        names_ += ",\n";
    }

    Tracks& tracks_;
    std::string names_;  // of new rows, each followed by a comma
};

}  // namespace

std::string encode(const Event& event, Tracks& tracks) {
    return std::visit(Encoder(tracks), event);
}

}  // namespace lms::trace

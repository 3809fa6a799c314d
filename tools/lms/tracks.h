// Which row of the viewer an event is drawn in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lms::tool {

// A viewer wants the slices of one row to nest or follow one another, but moves, launches and stalls of
// several threads overlap. So what belongs together gets as many rows as overlap at once. Not thread-safe.
class Tracks {
  public:
    struct Place {
        std::uint32_t row;  // unique over all devices
        bool is_new;        // never handed out before: it needs its name written
    };

    // The row for a slice of `group` (a name, unique within the device) from `begin_ns` to `end_ns`.
    Place place(int device, const std::string& group, std::uint64_t begin_ns, std::uint64_t end_ns);

  private:
    struct Row {
        std::uint32_t number;
        std::uint64_t busy_until_ns;
    };

    std::map<std::pair<int, std::string>, std::vector<Row>> groups_;
    std::uint32_t rows_ = 0;
};

}  // namespace lms::tool

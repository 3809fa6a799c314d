#include "tools/lms/tracks.h"

namespace lms::tool {

Tracks::Place Tracks::place(int device, const std::string& group, std::uint64_t begin_ns,
                            std::uint64_t end_ns) {
    std::vector<Row>& rows = groups_[{device, group}];
    for (Row& row : rows) {
        if (row.busy_until_ns > begin_ns) continue;
        row.busy_until_ns = end_ns;
        return {row.number, false};
    }
    rows.push_back({++rows_, end_ns});
    return {rows.back().number, true};
}

}  // namespace lms::tool

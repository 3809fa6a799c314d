#include "shim/engine/in_place_costs.h"

#include <algorithm>

namespace lms::engine {

InPlaceCosts::Choice InPlaceCosts::choose(std::uint64_t kind, double move_ns_per_byte) {
    if (kinds_.size() >= kMostKinds && !kinds_.contains(kind)) kinds_.clear();
    Kind& known = kinds_[kind];
    ++known.works;
    if (known.resident_ns == kUnknown) return {false, true};
    const bool unknown = known.more_ns_per_byte == kUnknown;
    const bool better = !unknown && known.more_ns_per_byte < move_ns_per_byte;
    if (known.works < known.next_try) return {better, false};
    // What stays in place costs nothing to be looked at again; to put there what does not, may cost much.
    if (!unknown) known.between = better ? kLeastBetween : std::min(2 * known.between, kMostBetween);
    known.next_try = known.works + (unknown ? kLost : known.between);
    return {true, true};
}

void InPlaceCosts::ran(std::uint64_t kind, std::uint64_t in_place_bytes, std::uint64_t ns) {
    const auto found = kinds_.find(kind);
    if (found == kinds_.end()) return;
    Kind& known = found->second;
    const auto took = static_cast<double>(ns);
    if (in_place_bytes == 0) {
        known.resident_ns = known.resident_ns == kUnknown ? took : std::min(known.resident_ns, took);
    } else if (known.resident_ns != kUnknown) {
        known.more_ns_per_byte =
            std::max(0.0, took - known.resident_ns) / static_cast<double>(in_place_bytes);
        known.next_try = std::max(known.next_try, known.works + known.between);
    }
}

}  // namespace lms::engine

// What lms report adds up, of traces made by hand.
#include "tools/lms/analysis.h"

#include <doctest/doctest.h>

using namespace lms::tool;
namespace trace = lms::trace;

TEST_CASE(
    "analysis: a buffer's share of a wait is what it lacked of all that was lacking, never more than all") {
    const trace::Piece piece{7, 3 << 20, false};
    const trace::Touched lacked{7, 3};
    const auto share_of = [&](std::uint64_t lacking_bytes, std::uint64_t waited_ns) {
        Trace trace;
        trace.events = {
            trace::Allocation{0, 3, 0x1000, 3 << 20, 1, {}, {&piece, 1}},
            trace::Stall{0, trace::StallCause::InUse, "f", lacking_bytes, {&lacked, 1}, 0, waited_ns}};
        return analyse(trace).groups.at(0).stall_ns;
    };
    CHECK(share_of(12 << 20, 1000) == 250);
    CHECK(share_of(3 << 20, 1000) == 1000);
    // Damaged.
    CHECK(share_of(1, 1000) == 1000);
    CHECK(share_of(1, ~std::uint64_t{0}) == ~std::uint64_t{0});
    CHECK(share_of(0, 1000) == 0);
}

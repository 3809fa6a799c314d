#include <doctest/doctest.h>

#include "shim/engine/in_place_costs.h"
#include "shim/engine/parts.h"

namespace lms::engine {
namespace {

TEST_CASE("parts: one ends where the next begins, the last with its buffer") {
    Parts parts;
    CHECK(parts.end_of(1, 0, 1000, 1) == 1000);
    for (const std::uint64_t offset : {500, 0, 300}) parts.begins(1, offset, 1);
    CHECK(parts.end_of(1, 0, 1000, 1) == 300);
    CHECK(parts.end_of(1, 300, 1000, 1) == 500);
    CHECK(parts.end_of(1, 400, 1000, 1) == 500);
    CHECK(parts.end_of(1, 500, 1000, 1) == 1000);
    CHECK(parts.end_of(1, 0, 200, 1) == 200);
    CHECK(parts.end_of(2, 0, 1000, 1) == 1000);
}

TEST_CASE("parts: what has not begun anything for long is forgotten") {
    Parts parts;
    parts.begins(1, 100, 0);
    parts.begins(1, 200, 20000);
    CHECK(parts.end_of(1, 0, 1000, 10000) == 100);
    CHECK(parts.end_of(1, 0, 1000, 20001) == 200);
}

TEST_CASE("parts: of ever new beginnings and kinds the latest are known") {
    Parts parts;
    for (std::uint64_t i = 0; i < 100000; ++i) parts.begins(1, 64 * i, i);
    CHECK(parts.end_of(1, 64 * 99998, ~0ull, 100000) == 64 * 99999);
    CHECK(parts.end_of(1, 0, ~0ull, 100000) > 64 * 50000);
    for (std::uint64_t kind = 2; kind < 1000; ++kind) parts.begins(kind, 10, 100000 + kind);
    CHECK(parts.end_of(1, 0, 1000, 200000) == 1000);
    CHECK(parts.end_of(999, 0, 1000, 101000) == 10);
}

// What a kind of work takes: `ns` where all is there, `more` for each byte in place.
struct Kernel {
    std::uint64_t kind;
    double ns, more;

    // How many of `works` use the `bytes` in place that they lack, where moving one takes `move`.
    int in_place(InPlaceCosts& costs, int works, std::uint64_t bytes, double move) const {
        int count = 0;
        for (int i = 0; i < works; ++i) {
            const auto choice = costs.choose(kind, move);
            count += choice.in_place;
            const double in_place_ns = choice.in_place ? more * static_cast<double>(bytes) : 0;
            if (choice.timed)
                costs.ran(kind, choice.in_place ? bytes : 0, static_cast<std::uint64_t>(ns + in_place_ns));
        }
        return count;
    }
};

TEST_CASE("in place costs: what reads each byte once stays in place, what reads it often is brought in") {
    InPlaceCosts costs;
    CHECK(Kernel{1, 1000, 1}.in_place(costs, 1000, 4096, 2) > 980);
    CHECK(Kernel{2, 1000, 8}.in_place(costs, 1000, 4096, 2) < 20);
    // Where others move it costs more.
    CHECK(Kernel{2, 1000, 8}.in_place(costs, 1000, 4096, 10) > 980);
}

TEST_CASE("in place costs: what was found out once is found out anew") {
    InPlaceCosts costs;
    CHECK(Kernel{1, 1000, 1}.in_place(costs, 1000, 4096, 2) > 980);
    CHECK(Kernel{1, 1000, 30}.in_place(costs, 4000, 4096, 2) < 2000);
    CHECK(Kernel{1, 1000, 30}.in_place(costs, 4000, 4096, 2) < 10);
}

TEST_CASE("in place costs: times that never come do not keep work in place") {
    InPlaceCosts costs;
    int in_place = 0;
    for (int i = 0; i < 1000; ++i) in_place += costs.choose(1, 2).in_place;
    CHECK(in_place == 0);
    costs.ran(1, 0, 1000);
    for (int i = 0; i < 1000; ++i) in_place += costs.choose(1, 2).in_place;
    CHECK(in_place <= 1000 / 64 + 1);
    CHECK(in_place > 1);
}

TEST_CASE("in place costs: nothing is known of moves at first") {
    InPlaceCosts costs;
    CHECK(Kernel{1, 1000, 1}.in_place(costs, 1000, 4096, 0) < 20);
}

}  // namespace
}  // namespace lms::engine

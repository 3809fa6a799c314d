// LMS_SOFT_LIMIT: which allocations fail once.
#include "shim/engine/soft_limit.h"

#include <doctest/doctest.h>

using lms::engine::SoftLimit;

namespace {
const std::thread::id kMain = std::this_thread::get_id();

std::thread::id another() {
    std::thread other([] {});
    const std::thread::id id = other.get_id();
    other.join();
    return id;
}
}  // namespace

TEST_CASE("soft limit: without one nothing is refused") {
    SoftLimit limit({});
    CHECK_FALSE(limit.refuses(1ull << 60, 1ull << 60, kMain));
}

TEST_CASE("soft limit: up to it nothing is refused, beyond it once a step") {
    SoftLimit limit(800);
    CHECK_FALSE(limit.refuses(0, 800, kMain));
    CHECK(limit.refuses(800, 1, kMain));
    CHECK_FALSE(limit.refuses(800, 1, kMain));   // nothing was given back
    CHECK_FALSE(limit.refuses(801, 99, kMain));  // up to 900: the same step
    CHECK(limit.refuses(900, 1, kMain));
    CHECK_FALSE(limit.refuses(900, 1, kMain));
    CHECK_FALSE(limit.refuses(999, 1, kMain));
}

TEST_CASE("soft limit: it stays where the program gave enough back") {
    SoftLimit limit(800);
    for (int round = 0; round < 3; ++round) {
        CHECK(limit.refuses(800, 50, kMain));
        CHECK_FALSE(limit.refuses(300, 50, kMain));
        CHECK_FALSE(limit.refuses(750, 50, kMain));
    }
}

TEST_CASE("soft limit: one allocation over many steps is refused once") {
    SoftLimit limit(800);
    CHECK(limit.refuses(0, 10000, kMain));
    CHECK_FALSE(limit.refuses(0, 10000, kMain));
    CHECK_FALSE(limit.refuses(9999, 1, kMain));
    CHECK(limit.refuses(10000, 1, kMain));
}

TEST_CASE("soft limit: a retry is served whatever other threads took meanwhile") {
    SoftLimit limit(800);
    const std::thread::id other = another();
    CHECK(limit.refuses(800, 50, kMain));
    CHECK(limit.refuses(800, 150, other));
    CHECK_FALSE(limit.refuses(800, 150, other));
    CHECK_FALSE(limit.refuses(5000, 50, kMain));  // beyond every step so far
    CHECK_FALSE(limit.refuses(5049, 1, kMain));   // and the mark is there now
}

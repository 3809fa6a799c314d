// What a replayed program's works wait for.
#include "tools/lms/pace.h"

#include <doctest/doctest.h>

using lms::tool::Pace;
using lms::tool::ReplayScript;
using Step = ReplayScript::Step;
using Touch = ReplayScript::Touch;

namespace {

constexpr std::uint64_t kMs = 1'000'000;

Step kernel_on(std::uint32_t stream) {
    return {.kind = Step::Kind::Work, .ran_ns = kMs, .stream = stream, .code = 1};
}
Step copy_on(std::uint32_t stream) {
    return {.kind = Step::Kind::Work, .ran_ns = 5 * kMs, .stream = stream};
}

const std::vector<Touch> kOne = {{0, false, false, false, 0}}, kOther = {{1, false, false, false, 0}};
const std::vector<Touch> kOneRead = {{0, false, false, true, 0}};

}  // namespace

TEST_CASE("pace: work waits for another stream's copy into what it uses, and for no other") {
    Pace pace(2, 2);
    CHECK(pace.submit(copy_on(1), kOne, 0) == doctest::Approx(0.005));
    CHECK(pace.submit(kernel_on(0), kOther, 0) == doctest::Approx(0.001));
    CHECK(pace.submit(kernel_on(0), kOne, 0) == doctest::Approx(0.006));
}

TEST_CASE("pace: a copy waits for another stream's work on what it copies; work does not wait for one out") {
    Pace pace(3, 2);
    CHECK(pace.submit(kernel_on(0), kOne, 0) == doctest::Approx(0.001));
    CHECK(pace.submit(copy_on(1), kOneRead, 0) == doctest::Approx(0.006));
    CHECK(pace.submit(kernel_on(2), kOne, 0) == doctest::Approx(0.001));
}

TEST_CASE("pace: a copy waits for its link, and keeps it busy") {
    Pace pace(1, 1);
    double link = 0.01;
    CHECK(pace.submit(copy_on(0), kOne, 0, &link) == doctest::Approx(0.015));
    CHECK(link == doctest::Approx(0.015));
}

TEST_CASE("pace: what is used in host memory takes as long as its link needs") {
    Pace pace(1, 1);
    CHECK(pace.submit(kernel_on(0), kOne, 0, nullptr, 0.003) == doctest::Approx(0.003));
    CHECK(pace.submit(kernel_on(0), kOne, 0, nullptr, 0.0001) == doctest::Approx(0.004));
}

// How fast copies are seen to go.
#include "shim/telemetry/link_speeds.h"

#include <doctest/doctest.h>

using lms::telemetry::LinkSpeeds;
using lms::trace::Direction;

TEST_CASE("link speeds: what the first copy told is mended by the next few, and after some it is known") {
    LinkSpeeds speeds;
    CHECK(speeds.copied(Direction::In, 1'000, 10'000));
    for (int i = 0; i < 6; ++i) CHECK_FALSE(speeds.copied(Direction::In, 1'000, 500));
    CHECK(speeds.copied(Direction::In, 1'000, 500));
    CHECK(speeds.bytes_per_s(Direction::In) > 500'000'000);
    CHECK_FALSE(speeds.known());
    for (int i = 0; i < 7; ++i) speeds.copied(Direction::Out, 1'000, 500);
    CHECK_FALSE(speeds.known());
    speeds.copied(Direction::Out, 1'000, 500);
    CHECK(speeds.known());

    LinkSpeeds one_way;
    for (int i = 0; i < 255; ++i) one_way.copied(Direction::Out, 1'000, 500);
    CHECK_FALSE(one_way.known());
    one_way.copied(Direction::Out, 1'000, 500);
    CHECK(one_way.known());
}

TEST_CASE("link speeds: the first copy tells, then what so many together differ by") {
    LinkSpeeds speeds;
    CHECK(speeds.bytes_per_s(Direction::In) == 0);
    CHECK_FALSE(speeds.copied(Direction::In, 0, 5));
    CHECK_FALSE(speeds.copied(Direction::In, 5, 0));
    CHECK(speeds.copied(Direction::In, 2'000, 1'000));
    CHECK(speeds.bytes_per_s(Direction::In) == 2'000'000'000);
    CHECK(speeds.bytes_per_s(Direction::Out) == 0);
    // A slow one among them, and a link that is a little slower, are no news.
    int told = speeds.copied(Direction::In, 2'000, 3'000);
    for (int i = 0; i < 1000; ++i) told += speeds.copied(Direction::In, 1'900, 1'000);
    CHECK(told == 0);
    CHECK(speeds.bytes_per_s(Direction::In) == 2'000'000'000);
    for (int i = 0; i < 1000; ++i) told += speeds.copied(Direction::In, 1'000, 1'000);
    CHECK(told >= 1);
    CHECK(told <= 2);
    CHECK(speeds.bytes_per_s(Direction::In) >= 1'000'000'000);
    CHECK(speeds.bytes_per_s(Direction::In) < 1'250'000'000);
    CHECK(speeds.copied(Direction::Out, 500, 1'000));
    CHECK(speeds.bytes_per_s(Direction::Out) == 500'000'000);
}

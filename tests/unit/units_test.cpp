#include "shim/util/units.h"

#include <doctest/doctest.h>

#include <limits>

using lms::util::format_bytes;
using lms::util::parse_bytes;
using lms::util::whole_bytes;

TEST_CASE("sizes: suffixes are powers of 1,024, in any case") {
    CHECK(parse_bytes("0") == 0);
    CHECK(parse_bytes("17") == 17);
    CHECK(parse_bytes("17B") == 17);
    CHECK(parse_bytes("64K") == 64ull << 10);
    CHECK(parse_bytes("64m") == 64ull << 20);
    CHECK(parse_bytes("3G") == 3ull << 30);
    CHECK(parse_bytes("2T") == 2ull << 40);
    CHECK(parse_bytes("2MB") == 2ull << 20);
    CHECK(parse_bytes("2mib") == 2ull << 20);
    CHECK(parse_bytes("1.5G") == 3ull << 29);
    CHECK(parse_bytes("0.5K") == 512);
}

TEST_CASE("sizes: a plain number counts the given unit, a suffix overrides it") {
    CHECK(parse_bytes("2048", 1024) == 2048 * 1024);
    CHECK(parse_bytes("1.5", 1024) == 1536);
    CHECK(parse_bytes("2048B", 1024) == 2048);
    CHECK(parse_bytes("2M", 1024) == 2 << 20);
}

TEST_CASE("sizes: the largest that fits, and the first that does not") {
    CHECK(parse_bytes("18446744073709551615") == 18446744073709551615ull);
    CHECK(parse_bytes("16777215T") == 16777215ull << 40);
    CHECK_FALSE(parse_bytes("18446744073709551616"));
    CHECK_FALSE(parse_bytes("16777216T"));
}

TEST_CASE("sizes: anything else is refused") {
    for (const char* text :
         {"",     " ",     "-1",  "+1",   "1 M", " 1",  "1 ",  "M",  ".",   ".5M", "1.",
          "1..5", "1.5.5", "1e3", "0x10", "1KK", "1Mi", "1iB", "1P", "nan", "inf", "1,5"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_bytes(text));
    }
}

TEST_CASE("sizes: printed short, and read back") {
    CHECK(format_bytes(0) == "0B");
    CHECK(format_bytes(1000) == "1000B");
    CHECK(format_bytes(1024) == "1K");
    CHECK(format_bytes(1536) == "1.5K");
    CHECK(format_bytes(64ull << 20) == "64M");
    CHECK(format_bytes((1ull << 30) + 1) == "1G");
    CHECK(format_bytes(10ull * 1024 * 1024 * 1024 / 3) == "3.33G");
    CHECK(format_bytes(5ull << 40) == "5T");
    CHECK(format_bytes(1024 * 1024 - 1) == "1023.99K");
    CHECK(parse_bytes(format_bytes(18446744073709551615ull)));
    for (const std::uint64_t bytes : {0ull, 1ull, 1023ull, 1ull << 10, 3ull << 19, 7ull << 30, 5ull << 39}) {
        CHECK(parse_bytes(format_bytes(bytes)) == bytes);
    }
}

TEST_CASE("sizes: of any number, what a damaged file may tell, there are bytes") {
    CHECK(whole_bytes(3.9) == 3);
    CHECK(whole_bytes(0x1p63) == std::uint64_t{1} << 63);
    CHECK(whole_bytes(0x1p64) == ~std::uint64_t{0});
    CHECK(whole_bytes(std::numeric_limits<double>::infinity()) == ~std::uint64_t{0});
    CHECK(whole_bytes(-1) == 0);
    CHECK(whole_bytes(std::numeric_limits<double>::quiet_NaN()) == 0);
}

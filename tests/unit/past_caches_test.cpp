#include "shim/util/past_caches.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

TEST_CASE("past caches: what is read is what is there, wherever it begins and ends") {
    constexpr std::size_t kRoom = 160;
    std::vector<unsigned char> from(kRoom);
    std::iota(from.begin(), from.end(), 1);
    for (std::size_t begin = 0; begin < 32; ++begin) {
        for (std::size_t bytes = 0; bytes <= 80; ++bytes) {
            CAPTURE(begin);
            CAPTURE(bytes);
            std::vector<unsigned char> to(kRoom, 0);
            lms::util::read_past_caches(to.data() + 3, from.data() + begin, bytes);
            std::vector<unsigned char> expected(kRoom, 0);
            std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(begin), bytes, expected.begin() + 3);
            REQUIRE(to == expected);
        }
    }
}

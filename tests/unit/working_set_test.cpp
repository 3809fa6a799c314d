// The scanner of launch arguments, against one that looks at each byte.
#include "shim/access/pointer_scan.h"

#include <doctest/doctest.h>

#include <cstring>
#include <memory_resource>
#include <random>
#include <vector>

namespace lms::access {
namespace {

constexpr session::Bounds kBounds{0x7f0000000000, 0x7f0000100000};

// As where a driver gives its lowest addresses.
constexpr session::Bounds kWide{0x302000000, 0x5000001000};

std::pmr::vector<engine::Address> scanned(const void* data, std::size_t bytes,
                                          session::Bounds bounds = kBounds) {
    std::pmr::vector<engine::Address> found;
    scan(data, bytes, bounds, [&](std::size_t at, engine::Address address) {
        engine::Address word = 0;
        std::memcpy(&word, static_cast<const char*>(data) + at, sizeof word);
        CHECK(word == address);
        found.push_back(address);
    });
    return found;
}

// Little-endian words at each byte.
std::pmr::vector<engine::Address> naive(const std::vector<unsigned char>& data,
                                        session::Bounds bounds = kBounds) {
    std::pmr::vector<engine::Address> found;
    for (std::size_t i = 0; i + 8 <= data.size(); ++i) {
        engine::Address word = 0;
        for (std::size_t byte = 8; byte-- > 0;) word = word << 8 | data[i + byte];
        if (word >= bounds.begin && word < bounds.end) found.push_back(word);
    }
    return found;
}

TEST_CASE("working set: all sizes, with addresses at every byte") {
    const engine::Address inside = kBounds.begin + 0x1234;
    for (std::size_t size = 0; size <= 64; ++size) {
        for (std::size_t at = 0; at + 8 <= size || at == 0; ++at) {
            std::vector<unsigned char> data(size, 0xA5);
            if (at + 8 <= size) std::memcpy(data.data() + at, &inside, 8);
            const auto found = scanned(data.data(), size);
            CHECK(found == naive(data));
            CHECK(found.size() == (at + 8 <= size ? 1 : 0));
        }
    }
}

TEST_CASE("working set: random words around the bounds") {
    for (const session::Bounds bounds : {kBounds, kWide}) {
        for (std::uint64_t seed = 1; seed <= 50; ++seed) {
            INFO("seed ", seed, " from ", bounds.begin);
            std::mt19937_64 random(seed);
            std::vector<unsigned char> data(random() % 4096);
            for (std::size_t at = 0; at + 8 <= data.size(); at += 1 + random() % 40) {
                const engine::Address near[] = {bounds.begin - 1,
                                                bounds.begin,
                                                bounds.begin + random() % 4096,
                                                bounds.begin + (bounds.end - bounds.begin) / 3,
                                                bounds.end - 1,
                                                bounds.end,
                                                bounds.end + 1,
                                                0,
                                                ~std::uint64_t{0},
                                                random()};
                std::memcpy(data.data() + at, &near[random() % std::size(near)], 8);
            }
            CHECK(scanned(data.data(), data.size(), bounds) == naive(data, bounds));
        }
    }
}

TEST_CASE("working set: the bounds, and structs passed by value") {
    struct {
        int length = 7;
        const char* const text = nullptr;
        engine::Address first = kBounds.begin;
        engine::Address last = kBounds.end - 1;
        engine::Address past = kBounds.end;
        engine::Address before = kBounds.begin - 1;
        float scale = 1;
        engine::Address inner[2] = {kBounds.begin + 8, 3};
    } const argument;
    CHECK(scanned(&argument, sizeof argument) ==
          std::pmr::vector<engine::Address>{kBounds.begin, kBounds.end - 1, kBounds.begin + 8});

    const engine::Address word = kBounds.begin;
    scan(&word, sizeof word, {0, 0},
         [](std::size_t, engine::Address) { CHECK("no managed memory" == nullptr); });
}

}  // namespace
}  // namespace lms::access

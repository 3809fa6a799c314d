// Words of pointer tables against a naive model: a map from each word to what it holds.
#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "shim/access/pointer_words.h"

using lms::access::Extent;
using lms::access::PointerWord;
using lms::access::PointerWords;
using lms::engine::Address;

namespace {

constexpr Address kBegin = 0x7f0000000000;

std::vector<Address> closed(PointerWords& words, const std::vector<Address>& from,
                            const PointerWords::ExtentOf& extent_of) {
    std::pmr::vector<Address> addresses(from.begin(), from.end());
    words.close_over(addresses, extent_of);
    std::sort(addresses.begin(), addresses.end());
    return {addresses.begin(), addresses.end()};
}

// Buffers of 256 bytes each, with 256 bytes between them.
std::optional<Extent> small_buffer(Address address) {
    const Address begin = address / 512 * 512;
    if (address < kBegin || address - begin >= 256) return std::nullopt;
    return Extent{begin, begin + 256};
}
constexpr Address buffer(int index) {
    return kBegin + static_cast<Address>(index) * 512;
}

class Model {
  public:
    void overwrite(Address begin, std::uint64_t bytes, const std::vector<PointerWord>& words) {
        std::erase_if(
            words_, [&](const auto& word) { return word.first >= begin && word.first + 8 <= begin + bytes; });
        for (const PointerWord& word : words) words_[word.at] = word.value;
    }
    void copy(Address to, Address from, std::uint64_t bytes) {
        std::vector<PointerWord> copied;
        for (const PointerWord& word : in(from, bytes)) {
            if ((word.at + to - from) % 8 == 0) copied.push_back({word.at + to - from, word.value});
        }
        overwrite(to, bytes, copied);
    }
    std::vector<PointerWord> in(Address begin, std::uint64_t bytes) const {
        std::vector<PointerWord> found;
        for (const auto& [at, value] : words_) {
            if (at >= begin && at + 8 <= begin + bytes) found.push_back({at, value});
        }
        return found;
    }
    // Every extent reached from `extent`, itself included.
    std::set<Address> reached(Extent from, const PointerWords::ExtentOf& extent_of) const {
        std::set<Address> begins{from.begin};
        std::vector<Extent> left{from};
        while (!left.empty()) {
            const Extent extent = left.back();
            left.pop_back();
            for (const PointerWord& word : in(extent.begin, extent.end - extent.begin)) {
                const auto next = extent_of(word.value);
                if (next && begins.insert(next->begin).second) left.push_back(*next);
            }
        }
        return begins;
    }
    bool empty() const { return words_.empty(); }

  private:
    std::map<Address, Address> words_;
};

}  // namespace

TEST_CASE("tables: a table names what its words point to, also in part overwritten") {
    PointerWords words;
    words.overwrite(
        buffer(0), 32,
        std::vector<PointerWord>{
            {buffer(0), buffer(1)}, {buffer(0) + 8, buffer(2) + 100}, {buffer(0) + 24, buffer(3) + 255}});
    CHECK(closed(words, {buffer(0) + 200}, small_buffer) ==
          std::vector<Address>{buffer(0) + 200, buffer(1), buffer(2) + 100, buffer(3) + 255});

    words.overwrite(buffer(0) + 8, 8, std::vector<PointerWord>{{buffer(0) + 8, buffer(4)}});
    CHECK(closed(words, {buffer(0)}, small_buffer) ==
          std::vector<Address>{buffer(0), buffer(1), buffer(3) + 255, buffer(4)});

    SUBCASE("a part of a word changes nothing") {
        words.overwrite(buffer(0) + 4, 4, {});
        words.overwrite(buffer(0) + 25, 7, {});
        CHECK(closed(words, {buffer(0)}, small_buffer).size() == 4);
    }
    SUBCASE("a set ends it") {
        words.overwrite(buffer(0), 256, {});
        CHECK(words.empty());
        CHECK(closed(words, {buffer(0)}, small_buffer) == std::vector<Address>{buffer(0)});
    }
    SUBCASE("added words leave the others") {
        words.add(std::vector<PointerWord>{{buffer(0) + 16, buffer(5)}});
        CHECK(closed(words, {buffer(0)}, small_buffer).size() == 5);
    }
}

TEST_CASE("tables: tables of tables, rings and addresses of nothing") {
    PointerWords words;
    words.add(std::vector<PointerWord>{{buffer(0), buffer(1)}, {buffer(0) + 8, buffer(7) + 300}});
    words.add(std::vector<PointerWord>{{buffer(1) + 64, buffer(2)}});
    words.add(std::vector<PointerWord>{{buffer(2), buffer(0)}, {buffer(2) + 8, buffer(2)}});
    CHECK(closed(words, {buffer(0)}, small_buffer) == std::vector<Address>{buffer(0), buffer(1), buffer(2)});
    CHECK(closed(words, {buffer(2)}, small_buffer) == std::vector<Address>{buffer(0), buffer(1), buffer(2)});
    CHECK(closed(words, {buffer(3)}, small_buffer) == std::vector<Address>{buffer(3)});
    CHECK(closed(words, {}, small_buffer).empty());
}

TEST_CASE("tables: words that point to where one buffer ends and the next begins name the next") {
    // One buffer of 256 bytes after another.
    const auto adjacent = [](Address address) -> std::optional<Extent> {
        const Address begin = address / 256 * 256;
        return Extent{begin, begin + 256};
    };
    PointerWords words;
    words.add(std::vector<PointerWord>{{kBegin, kBegin + 512}, {kBegin + 8, kBegin + 768}});
    CHECK(closed(words, {kBegin}, adjacent) == std::vector<Address>{kBegin, kBegin + 512, kBegin + 768});
}

TEST_CASE("tables: what an address names is asked at each look") {
    PointerWords words;
    words.add(std::vector<PointerWord>{{buffer(0), buffer(1)}});
    bool freed = false;
    const auto extent_of = [&](Address address) {
        return freed && address >= buffer(1) ? std::nullopt : small_buffer(address);
    };
    CHECK(closed(words, {buffer(0)}, extent_of).size() == 2);
    freed = true;
    CHECK(closed(words, {buffer(0)}, extent_of).size() == 1);
    freed = false;
    CHECK(closed(words, {buffer(0)}, extent_of).size() == 2);
}

TEST_CASE("one buffer after another at an address: the words of each") {
    PointerWords words;
    words.add(std::vector<PointerWord>{{kBegin, buffer(10)}, {kBegin + 0x8000, buffer(11)}});
    std::uint64_t bytes = 0x10000;
    const auto extent_of = [&](Address address) -> std::optional<Extent> {
        if (address - kBegin < 0x1400) return small_buffer(address);
        return std::nullopt;
    };
    const auto table = [&](Address address) -> std::optional<Extent> {
        if (address == kBegin) return Extent{kBegin, kBegin + bytes};
        return address == buffer(10) || address == buffer(11) ? Extent{address, address + 8}
                                                              : extent_of(address);
    };
    CHECK(closed(words, {kBegin}, table).size() == 3);
    bytes = 0x1000;
    CHECK(closed(words, {kBegin}, table).size() == 2);
    bytes = 0x10000;
    CHECK(closed(words, {kBegin}, table).size() == 3);
}

TEST_CASE("tables: random uploads, copies and sets, as the model") {
    // Extents of odd sizes, so that they begin and end within pages; gaps between them.
    constexpr Address kSpan = 64 << 10;
    for (unsigned seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const auto below = [&](std::uint64_t n) { return random() % n; };
        std::map<Address, Extent> extents;
        for (Address at = kBegin; at < kBegin + kSpan;) {
            const Address end = at + 8 + below(9000);
            extents.emplace(at, Extent{at, end});
            at = (end + below(600) + 7) / 8 * 8;
        }
        const auto extent_of = [&](Address address) -> std::optional<Extent> {
            auto it = extents.upper_bound(address);
            if (it == extents.begin()) return std::nullopt;
            --it;
            if (address >= it->second.end) return std::nullopt;
            return it->second;
        };
        PointerWords words;
        Model model;
        for (int step = 0; step < 400; ++step) {
            CAPTURE(step);
            const Address begin = kBegin + below(kSpan);
            const std::uint64_t bytes = below(below(4) == 0 ? 20000 : 200);
            switch (below(4)) {
                case 0:
                case 1: {
                    std::vector<PointerWord> uploaded;
                    const std::uint64_t sparse = 1 + below(20);
                    for (Address at = (begin + 7) / 8 * 8; at + 8 <= begin + bytes; at += 8) {
                        if (below(sparse) == 0) uploaded.push_back({at, kBegin + below(kSpan)});
                    }
                    words.overwrite(begin, bytes, uploaded);
                    model.overwrite(begin, bytes, uploaded);
                    break;
                }
                case 2:
                    words.overwrite(begin, bytes, {});
                    model.overwrite(begin, bytes, {});
                    break;
                default: {
                    const Address to =
                        below(4) == 0 ? kBegin + below(kSpan) : begin + (below(kSpan) - kSpan / 2) / 8 * 8;
                    words.copy(to, begin, bytes);
                    model.copy(to, begin, bytes);
                }
            }
            const Address at = kBegin + below(kSpan);
            const std::uint64_t span = below(5000);
            REQUIRE(words.words_in(at, span) == model.in(at, span));
            REQUIRE(words.any_in(at, span) == !model.in(at, span).empty());
            REQUIRE(words.empty() == model.empty());
            if (const auto root = extent_of(at)) {
                std::set<Address> begins;
                const std::vector<Address> addresses = closed(words, {at}, extent_of);
                for (const Address address : addresses) begins.insert(extent_of(address)->begin);
                REQUIRE(begins == model.reached(*root, extent_of));
                REQUIRE(begins.size() == addresses.size());
            }
        }
    }
}

TEST_CASE("tables: what holds no addresses leaves nothing behind for having been asked about") {
    PointerWords words;
    const PointerWord table{buffer(0), buffer(1)};
    words.add(std::span(&table, 1));
    const auto ask = [&](int index) { return closed(words, {buffer(index)}, small_buffer); };
    REQUIRE(ask(0) == std::vector<Address>{buffer(0), buffer(1)});
    const std::size_t before = mallinfo2().uordblks;
    for (int index = 2; index < 20'000; ++index) REQUIRE(ask(index) == std::vector<Address>{buffer(index)});
    CHECK(mallinfo2().uordblks < before + 4096);
}

// From a kernel's accesses and the values of its parameters to where they begin.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "shim/access/placed_access.h"

using namespace lms::access;
using namespace lms::code;

namespace {

struct ParameterBlock {
    std::vector<Parameter> layout;
    std::vector<char> bytes = std::vector<char>(64);

    template <typename Value>
    void add(std::size_t offset, Value value) {
        layout.push_back({offset, sizeof value});
        std::memcpy(bytes.data() + offset, &value, sizeof value);
    }
    std::uint64_t begin(const PlacedAccess& access_at) const {
        return begin_of(access_at, [&](const Place& at, void* to, std::size_t n) {
            std::memcpy(to, bytes.data() + layout[at.parameter].offset + at.offset, n);
        });
    }
};

KernelAccess access_at(std::vector<LinearTerm> terms, std::int64_t constant) {
    KernelAccess one{{}, {constant, std::move(terms)}, true};
    for (const LinearTerm& term : one.begins.terms) one.words.add(term.offset, term.bytes);
    return one;
}

}  // namespace

TEST_CASE("placed accesses: begin where the sum of the parameters says") {
    ParameterBlock block;
    block.add(0, std::uint64_t{0x7000'0000'0000});
    block.add(8, std::int64_t{-5});
    block.add(16, std::int32_t{-7});
    const auto begin = [&](const KernelAccess& one) {
        return block.begin(place(std::span(&one, 1), block.layout)[0]);
    };
    CHECK(begin(access_at({{0, 8, false, 1}}, 0)) == 0x7000'0000'0000);
    CHECK(begin(access_at({{0, 8, false, 1}, {8, 8, false, 8}}, 0)) == 0x7000'0000'0000 - 40);
    CHECK(begin(access_at({{0, 8, false, 1}, {16, 4, true, -4}}, 65536)) == 0x7000'0000'0000 + 28 + 65536);
    CHECK(begin(access_at({{0, 8, false, 1}, {16, 4, false, 1}}, 0)) == 0x7000'0000'0000 + 0xffff'fff9);
    // Nothing to add up, or something that is not there.
    CHECK(begin(access_at({}, 65536)) == 0);
    CHECK(begin(access_at({{0, 8, false, 1}, {24, 8, false, 1}}, 0)) == 0);
    CHECK(begin(access_at({{0, 8, false, 1}, {16, 8, false, 1}}, 0)) == 0);
}

TEST_CASE("placed accesses: the words that had a part in one, and which of them are in its sum") {
    const std::vector<Parameter> layout{{0, 8}, {8, 24}, {32, 4}};
    KernelAccess one = access_at({{0, 8, false, 1}, {16, 8, false, 4}}, 0);
    one.words.add(24, 8);
    one.words.add(32, 4);
    const auto placed = place(std::span(&one, 1), layout)[0];
    REQUIRE(placed.words.size() == 3);
    const auto is = [](const PlacedAccess::Word& word, std::size_t parameter, std::size_t offset,
                       bool in_sum) {
        return word.at.parameter == parameter && word.at.offset == offset && word.in_sum == in_sum;
    };
    CHECK(is(placed.words[0], 0, 0, true));
    CHECK(is(placed.words[1], 1, 8, true));
    CHECK(is(placed.words[2], 1, 16, false));
}

// What the program has mapped around an address: over handles, and over reservations that go on with one
// another because it asked for them so.
#include <doctest/doctest.h>

#include "shim/program/address_book.h"

using lms::program::AddressBook;
using lms::program::AddressRange;

namespace {

constexpr std::uint64_t kSize = 0x10000;
constexpr std::uint64_t kBase = 0x7000'0000'0000;

std::uint64_t address_of(int place) {
    return kBase + static_cast<std::uint64_t>(place) * kSize;
}

struct Book : AddressBook {
    void map(int place) { add({.address = address_of(place), .bytes = kSize}); }
    bool runs(int place, int begin, int end) const {
        const AddressRange run = run_at(address_of(place), 0);
        return run.begin == address_of(begin) && run.end == address_of(end);
    }
};

}  // namespace

TEST_CASE("address book: reservations side by side are arrays of their own") {
    Book book;
    for (int i = 0; i < 3; ++i) {
        book.reserve(address_of(i), kSize, 0);
        book.map(i);
    }
    for (int i = 0; i < 3; ++i) CHECK(book.runs(i, i, i + 1));
    // Wanted elsewhere.
    book.unreserve(address_of(1));
    book.reserve(address_of(1), kSize, address_of(7));
    CHECK(book.runs(1, 1, 2));
}

TEST_CASE("address book: those that the program wanted there, and got, go on with one another") {
    Book book;
    book.reserve(address_of(1), kSize, 0);
    book.reserve(address_of(2), 2 * kSize, address_of(2));
    book.reserve(address_of(0), kSize, address_of(0));
    book.reserve(address_of(4), kSize, 0);
    for (int i = 0; i < 5; ++i) book.map(i);
    for (int i = 0; i < 4; ++i) CHECK(book.runs(i, 0, 4));
    CHECK(book.runs(4, 4, 5));
    // A gap ends it.
    book.remove(address_of(2));
    CHECK(book.runs(1, 0, 2));
    CHECK(book.runs(3, 3, 4));
}

TEST_CASE("address book: what goes on is forgotten with the addresses, unless they stay") {
    Book book;
    book.reserve(address_of(0), kSize, 0);
    book.reserve(address_of(1), kSize, address_of(1));
    book.map(0);
    book.map(1);
    CHECK(book.unreserve(address_of(1)) == kSize);
    book.reserve_again(address_of(1), kSize);
    CHECK(book.runs(0, 0, 2));
    book.unreserve(address_of(1));
    book.reserve(address_of(1), kSize, 0);
    CHECK(book.runs(0, 0, 1));
    book.unreserve(address_of(0));
    book.reserve(address_of(0), kSize, address_of(0));
    CHECK(book.runs(0, 0, 2));
}

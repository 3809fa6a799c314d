// What is set apart for when the system has no memory left.
#include "shim/util/reserve.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using lms::util::Reserve;

namespace {

struct Piece {
    unsigned char* place;
    std::size_t bytes;
    unsigned char value;
};

bool whole(const Piece& piece) {
    return std::all_of(piece.place, piece.place + piece.bytes,
                       [&](unsigned char byte) { return byte == piece.value; });
}

// Takes and gives back at random; each piece keeps what is its own.
void churn(Reserve& reserve, unsigned seed, int steps) {
    std::mt19937 random(seed);
    std::vector<Piece> pieces;
    bool right = true;
    for (int step = 0; step < steps; ++step) {
        if (pieces.empty() || random() % 2 == 0) {
            const std::size_t bytes = random() % 8 == 0 ? random() % (256 << 10) : random() % 512;
            const auto value = static_cast<unsigned char>(random());
            auto* const place = static_cast<unsigned char*>(reserve.take(bytes));
            if (!place) continue;
            right &=
                reserve.owns(place) && reinterpret_cast<std::uintptr_t>(place) % Reserve::kAlignment == 0;
            std::memset(place, value, bytes);
            pieces.push_back({place, bytes, value});
        } else {
            std::swap(pieces[random() % pieces.size()], pieces.back());
            right &= whole(pieces.back());
            reserve.give_back(pieces.back().place);
            pieces.pop_back();
        }
    }
    for (const Piece& piece : pieces) {
        right &= whole(piece);
        reserve.give_back(piece.place);
    }
    CHECK(right);
}

}  // namespace

TEST_CASE("reserve: pieces do not overlap, and all of it comes back") {
    const auto reserve = std::make_unique<Reserve>();
    for (unsigned seed = 1; seed <= 20; ++seed) {
        churn(*reserve, seed, 2000);
        CHECK(reserve->used_bytes() == 0);
        void* const all = reserve->take(Reserve::kBytes);
        CHECK(all);
        reserve->give_back(all);
    }
}

TEST_CASE("reserve: what was given back in pieces serves in one") {
    const auto reserve = std::make_unique<Reserve>();
    std::vector<void*> pieces;
    for (void* piece; (piece = reserve->take(1000));) pieces.push_back(piece);
    CHECK(pieces.size() == Reserve::kBytes / 1024);
    CHECK_FALSE(reserve->take(1));
    // All but the last, so that something is in use.
    for (std::size_t i = 0; i + 1 < pieces.size(); i += 2) reserve->give_back(pieces[i]);
    CHECK_FALSE(reserve->take(1025));
    for (std::size_t i = 1; i + 1 < pieces.size(); i += 2) reserve->give_back(pieces[i]);
    CHECK(reserve->used_bytes() == 1024);
    CHECK(reserve->take(Reserve::kBytes - 1024));
}

TEST_CASE("reserve: what it cannot give") {
    const auto reserve = std::make_unique<Reserve>();
    CHECK_FALSE(reserve->take(Reserve::kBytes + 1));
    CHECK_FALSE(reserve->take(SIZE_MAX));
    CHECK_FALSE(reserve->take(1, 4096));
    void* const none = reserve->take(0);
    CHECK(none);
    CHECK(reserve->take(0) != none);
    const int elsewhere = 0;
    CHECK_FALSE(reserve->owns(&elsewhere));
    CHECK_FALSE(reserve->owns(nullptr));
}

TEST_CASE("reserve: threads") {
    const auto reserve = std::make_unique<Reserve>();
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed)
        threads.emplace_back([&, seed] { churn(*reserve, seed, 5000); });
    for (std::thread& thread : threads) thread.join();
    CHECK(reserve->used_bytes() == 0);
}

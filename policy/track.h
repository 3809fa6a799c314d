// A sequence of tokens, and the place in its past that it repeats now: what came next there comes next.
//
// Pure; the caller serialises. Calls may throw std::bad_alloc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lms::policy {

class Track {
  public:
    using Position = std::uint64_t;  // of an event, from 1

    // Remembers so many tokens, a power of two, once there are any.
    explicit Track(std::size_t most) : mask_(most - 1) {}

    // The event `at` has this token.
    void follow(std::uint64_t token, Position at) {
        if (ones_.empty()) begin();
        if (end_ - begin_ > mask_) forget_one();
        one(end_) = {token, at, one(end_ - 1).until * kBase + token};
        ++end_;
        find(token);
        place_ = match_ == 0 ? 0 : one(match_).at;
    }
    // The history begins at the event `oldest`.
    void forget_before(Position oldest) {
        while (begin_ < end_ && one(begin_).at < oldest) forget_one();
    }

    // Of the last token; 0: of the place there is none.
    std::uint64_t token() const { return ones_.empty() ? 0 : one(end_ - 1).token; }
    std::uint64_t token_of_place() const { return match_ == 0 ? 0 : one(match_).token; }
    // The event that the latest is taken for; 0: none.
    Position place() const { return place_; }
    // The latest was foretold.
    bool came_true() const { return came_true_; }
    // The share of the latest works that were; judge() counts one.
    double trust() const { return trust_; }
    void judge() { trust_ += ((came_true_ ? 1.0 : 0.0) - trust_) * kWeight; }
    // Changes when the place is another than where what was foretold, or was left out, leads to.
    std::uint64_t jumps() const { return jumps_; }

  private:
    // Lengths of the contexts that are looked for: the long one is rarely mistaken, the short one soon found.
    static constexpr std::size_t kLong = 12;
    static constexpr std::size_t kShort = 3;
    // Tokens that are looked through for one that has come instead of the next, and those in between that it
    // may take until one of them comes.
    static constexpr Position kAhead = 4;
    static constexpr unsigned kStrays = 8;
    // What a piece of work counts for among those that trust rests on.
    static constexpr double kWeight = 1.0 / 32;
    static constexpr std::uint64_t kBase = 0x9FB21C651E98DF25;

    // Of these, numbers count from 1, in a circle.
    struct One {
        std::uint64_t token = 0;
        Position at = 0;
        std::uint64_t until = 0;  // of all tokens up to this one: a polynomial in kBase
    };
    struct Found {
        std::uint64_t context = 0;
        std::uint64_t number = 0;
    };

    static constexpr std::uint64_t power(std::size_t length) {
        std::uint64_t product = 1;
        for (std::size_t i = 0; i < length; ++i) product *= kBase;
        return product;
    }
    static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
        const std::uint64_t x = (a ^ b) * 0xFF51AFD7ED558CCDull;
        return x ^ (x >> 32) ^ (a << 7);
    }

    One& one(std::uint64_t number) { return ones_[number & mask_]; }
    const One& one(std::uint64_t number) const { return ones_[number & mask_]; }

    void begin() {
        by_long_.resize(mask_ + 1);
        by_short_.resize(mask_ + 1);
        ones_.resize(mask_ + 1);
    }

    void forget_one() {
        if (match_ == begin_++) lose_place();
    }
    void lose_place() {
        if (match_ == 0) return;
        match_ = place_ = 0;
        strays_ = 0;
        ++jumps_;
    }

    void find(std::uint64_t token) {
        const std::uint64_t onward = soon(token);
        came_true_ = onward != 0 && onward == match_ + 1;
        const std::uint64_t by_long = look_up<kLong>(by_long_);
        const std::uint64_t by_short = look_up<kShort>(by_short_);
        if (came_true_ || (onward != 0 && by_long == 0)) {
            match_ = onward;
            strays_ = 0;
            return;
        }
        // It may do something else in between.
        if (by_long == 0 && by_short == 0 && match_ != 0 && ++strays_ <= kStrays) return;
        match_ = by_long != 0 ? by_long : by_short;
        strays_ = 0;
        ++jumps_;
    }

    // The first of those foretold next that has this token; 0: none has. Those before have been left out.
    std::uint64_t soon(std::uint64_t token) const {
        if (match_ == 0) return 0;
        const std::uint64_t last = std::min(match_ + kAhead, end_ - 2);
        for (std::uint64_t number = match_ + 1; number <= last; ++number) {
            if (one(number).token == token) return number;
        }
        return 0;
    }

    // Where the last `length` tokens were last seen, 0 if nowhere; from now on it is here.
    template <std::size_t length>
    std::uint64_t look_up(std::vector<Found>& places) {
        const std::uint64_t now = end_ - 1;
        if (now < begin_ + length) return 0;
        constexpr std::uint64_t kPower = power(length);
        const std::uint64_t before = one(now - length).until * kPower;
        const std::uint64_t context = mix(length, one(now).until - before);
        Found& place = places[context & mask_];
        const std::uint64_t found = place.context == context && place.number >= begin_ ? place.number : 0;
        place = {context, now};
        return found;
    }

    const std::size_t mask_;
    std::vector<One> ones_;
    std::vector<Found> by_long_, by_short_;  // by context
    std::uint64_t begin_ = 1, end_ = 1;
    std::uint64_t match_ = 0;  // what the latest is taken for; 0: none
    Position place_ = 0;       // its event
    unsigned strays_ = 0;      // since one of those foretold
    bool came_true_ = false;
    double trust_ = 0;
    std::uint64_t jumps_ = 0;
};

}  // namespace lms::policy

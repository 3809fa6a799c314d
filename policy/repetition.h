// Repetition in what a program does: an on-line search for the place in its past that it repeats now, and for
// what followed there.
//
// Every piece of work and every new allocation is an event with a token. While tokens follow one another as
// they did at an earlier place in the history, what comes next is what came next there.
//
// - The token of an allocation is its size. That of work tells the chunks it names, in any order: by
//   themselves those that have lived long, by size those that the next iteration will have anew.
// - What chunks have in common from one iteration to the next is their role. A chunk that is added where one
//   was added in the past, of an allocation of that size, takes that one's role, if it is free.
// - Ages, and trust in what is foretold, are counted in pieces of work. Allocations alone would often come
//   true: most are of few sizes.
//
// Pure; the caller serialises. Memory is bounded by kEvents and kUses. Calls may throw std::bad_alloc.
#pragma once

#include <lms/policy.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lms::policy {

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
// A made-up input is short: so it comes round too, and costs no megabytes to begin with.
inline constexpr unsigned kHistoryBits = 7;
#else
inline constexpr unsigned kHistoryBits = 15;
#endif

class Repetition {
  public:
    using Position = std::uint64_t;  // of an event, from 1
    using Works = std::uint64_t;     // a number of pieces of work
    static constexpr Position kNever = ~Position{0};

    // Chunks of an allocation of `allocation_bytes` follow one another; `first`: none did yet.
    void added(std::uint32_t chunk, std::uint64_t bytes, std::uint64_t allocation_bytes, bool first) {
        if (chunk >= chunks_.size()) chunks_.resize(std::size_t{chunk} + 1);
        // No history is kept before there is work to predict.
        const bool told = !events_.empty();
        const std::uint64_t token = mix(kAdded, allocation_bytes);
        if (told && (first || event(now()).token != token)) begin_event(token);
        std::uint32_t role = kNoRole;
        if (match_ != 0 && event(match_).token == token && event(match_).count > event(now()).count)
            role = uses_[(event(match_).first + event(now()).count) % kUses];
        if (role == kNoRole || roles_[role].chunk != LMS_NO_CHUNK) role = new_role();
        roles_[role].chunk = chunk;
        chunks_[chunk] = {role, works_, bytes};
        if (told) name(role);
    }

    void removed(std::uint32_t chunk) {
        const std::uint32_t role = role_of(chunk);
        if (role == kNoRole) return;
        if (is_aged(chunks_[chunk])) longest_life_ = std::max(longest_life_, works_ - chunks_[chunk].born);
        if (chunks_[chunk].worked) bytes_in_use_ -= chunks_[chunk].bytes;
        roles_[role].chunk = LMS_NO_CHUNK;
        chunks_[chunk] = {};
        recycle(role);
    }

    void work(std::span<const std::uint32_t> chunks) {
        if (events_.empty()) begin_history();
        std::uint64_t token = kWork;
        ++works_;
        for (const std::uint32_t chunk : chunks) token += mix(kWork, look_of(chunk));
        begin_event(token);
        judge();
        for (const std::uint32_t chunk : chunks) {
            const std::uint32_t role = role_of(chunk);
            if (role == kNoRole) continue;
            name(role);
            Chunk& one = chunks_[chunk];
            if (!one.worked) bytes_in_use_ += one.bytes;
            one.worked = true;
        }
        event(now()).bytes_in_use = bytes_in_use_;
    }

    // Whether more than `share` of the work was foretold lately.
    bool trusted(double share) const { return match_ != 0 && trust_ > share; }
    // The latest event, the one of the past that it is taken for, and how far back that is. What came between
    // the two is foretold to come again: its positions stand for those to come.
    Position now() const { return end_ - 1; }
    Position place() const { return match_; }
    Position lag() const { return now() - match_; }
    // Changes when next_use() may answer anew for other chunks than those just named.
    std::uint64_t epoch() const { return epoch_; }

    // The event that is foretold to name the chunk next; kNever if none is.
    Position next_use(std::uint32_t chunk) const {
        const std::uint32_t role = role_of(chunk);
        if (role == kNoRole || match_ == 0) return kNever;
        const std::vector<Position>& uses = roles_[role].uses;
        const auto next = std::upper_bound(uses.begin(), uses.end(), match_);
        return next == uses.end() ? kNever : *next;
    }

    // Calls take(chunk, position) for the chunks of the events foretold after `from`, in order, until it
    // answers false or nothing more is foretold.
    template <typename Take>
    void foretold(Position from, Take&& take) const {
        if (match_ == 0) return;
        for (Position at = std::max(from, match_) + 1; at <= now(); ++at) {
            const Event& past = event(at);
            for (std::uint64_t i = past.first; i < past.first + past.count; ++i) {
                const std::uint32_t chunk = roles_[uses_[i % kUses]].chunk;
                if (chunk != LMS_NO_CHUNK && !take(chunk, at)) return;
            }
        }
    }

    // The bytes foretold to be in use at the event `at`, from place() to now(): of chunks that work has named
    // since they were made. Needs a match.
    std::uint64_t bytes_in_use(Position at) const { return event(at).bytes_in_use; }

  private:
    static constexpr std::size_t kEvents = std::size_t{1} << kHistoryBits;
    static constexpr std::size_t kUses = 8 * kEvents;
    static constexpr std::size_t kPlaces = kEvents;
    // Lengths of the contexts that are looked for: the long one is rarely mistaken, the short one soon found.
    static constexpr std::size_t kLong = 12;
    static constexpr std::size_t kShort = 3;
    // Events that are looked through for one that has come instead of the next, and those in between that it
    // may take until one of them comes.
    static constexpr Position kAhead = 4;
    static constexpr unsigned kStrays = 8;
    // What a piece of work counts for among those that trust rests on.
    static constexpr double kWeight = 1.0 / 32;
    // The pieces of work a chunk must have lived for to be known by itself: more than what an iteration makes
    // for itself lives. How many that are is found by trying. A number is tried for kTrial times as much
    // work, and the next is at most kRaise times as large.
    static constexpr Works kLeastAge = 64, kMostAge = 1 << 14, kTrial = 2, kRaise = 4;
    static constexpr double kSettled = 0.98;
    static constexpr std::uint32_t kNoRole = ~std::uint32_t{0};
    static constexpr std::uint64_t kBase = 0x9FB21C651E98DF25;
    static constexpr std::uint64_t kAdded = 0x9E3779B97F4A7C15, kWork = 0xD1B54A32D192ED03;

    struct Chunk {
        std::uint32_t role = kNoRole;
        Works born = 0;
        std::uint64_t bytes = 0;
        bool worked = false;  // some work has named it
    };
    struct Event {
        std::uint64_t token = 0;
        std::uint64_t first = 0;  // of its uses, and how many
        std::uint32_t count = 0;
        std::uint64_t bytes_in_use = 0;
        std::uint64_t until = 0;  // of all tokens up to this one: a polynomial in kBase
    };
    struct Role {
        std::uint32_t chunk = LMS_NO_CHUNK;  // what has it now
        std::uint32_t events = 0;            // in the history that name it
        std::vector<Position> uses;          // of those, and some of before; rising
    };
    struct Place {
        std::uint64_t context = 0;
        Position at = 0;
    };

    static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
        const std::uint64_t x = (a ^ b) * 0xFF51AFD7ED558CCDull;
        return x ^ (x >> 32) ^ (a << 7);
    }

    static constexpr std::uint64_t power(std::size_t length) {
        std::uint64_t product = 1;
        for (std::size_t i = 0; i < length; ++i) product *= kBase;
        return product;
    }

    std::uint32_t role_of(std::uint32_t chunk) const {
        return chunk < chunks_.size() ? chunks_[chunk].role : kNoRole;
    }
    std::uint64_t look_of(std::uint32_t chunk) const {
        if (chunk >= chunks_.size()) return 0;
        const Chunk& one = chunks_[chunk];
        return is_aged(one) ? mix(one.born, chunk) : one.bytes;
    }
    bool is_aged(const Chunk& chunk) const { return works_ - chunk.born > age_; }
    Event& event(Position at) { return events_[at % kEvents]; }
    const Event& event(Position at) const { return events_[at % kEvents]; }

    void begin_history() {
        uses_.resize(kUses);
        long_places_.resize(kPlaces);
        short_places_.resize(kPlaces);
        events_.resize(kEvents);
    }

    void begin_event(std::uint64_t token) {
        while (end_ - begin_ >= kEvents) forget_oldest();
        event(end_) = {token, uses_end_, 0, bytes_in_use_, event(end_ - 1).until * kBase + token};
        ++end_;
        follow(token);
    }

    void name(std::uint32_t role) {
        const Position at = now();
        Event& latest = event(at);
        while (uses_end_ - event(begin_).first >= kUses && begin_ < at) forget_oldest();
        if (uses_end_ - latest.first >= kUses) return;
        uses_[uses_end_++ % kUses] = role;
        ++latest.count;
        Role& one = roles_[role];
        ++one.events;
        if (!one.uses.empty() && one.uses.back() == at) return;
        if (one.uses.size() == one.uses.capacity()) forget_uses_of(one);
        one.uses.push_back(at);
    }

    void forget_oldest() {
        if (match_ == begin_) lose_track();
        const Event gone = event(begin_++);
        for (std::uint64_t i = gone.first; i < gone.first + gone.count; ++i) {
            const std::uint32_t role = uses_[i % kUses];
            --roles_[role].events;
            recycle(role);
        }
    }

    // Leaves room for as many uses as remain, so that a role named by every event does not have them moved by
    // every one.
    void forget_uses_of(Role& one) {
        one.uses.erase(one.uses.begin(), std::lower_bound(one.uses.begin(), one.uses.end(), begin_));
        one.uses.reserve(2 * one.uses.size());
    }

    std::uint32_t new_role() {
        if (free_roles_.empty()) {
            roles_.emplace_back();
            return static_cast<std::uint32_t>(roles_.size() - 1);
        }
        const std::uint32_t role = free_roles_.back();
        free_roles_.pop_back();
        return role;
    }

    void recycle(std::uint32_t role) {
        if (roles_[role].chunk != LMS_NO_CHUNK || roles_[role].events != 0) return;
        roles_[role].uses.clear();
        free_roles_.push_back(role);
    }

    void lose_track() {
        match_ = 0;
        strays_ = 0;
        ++epoch_;
    }

    // Finds out where in the past the event stands that has just begun.
    void follow(std::uint64_t token) {
        const Position onward = soon(token);
        came_true_ = onward != 0 && onward == match_ + 1;
        const Position by_long = look_up<kLong>(long_places_);
        const Position by_short = look_up<kShort>(short_places_);
        if (came_true_ || (onward != 0 && by_long == 0)) {
            match_ = onward;
            strays_ = 0;
            return;
        }
        // It may do something else in between.
        if (by_long == 0 && by_short == 0 && match_ != 0 && ++strays_ <= kStrays) return;
        match_ = by_long != 0 ? by_long : by_short;
        strays_ = 0;
        ++epoch_;
    }

    // The first of the events foretold next that has this token; 0: none has. The program has left out those
    // before.
    Position soon(std::uint64_t token) const {
        if (match_ == 0) return 0;
        const Position last = std::min(match_ + kAhead, now() - 1);
        for (Position at = match_ + 1; at <= last; ++at) {
            if (event(at).token == token) return at;
        }
        return 0;
    }

    // Where the last `length` tokens were last seen, 0 if nowhere; from now on it is here.
    template <std::size_t length>
    Position look_up(std::vector<Place>& places) {
        if (now() < begin_ + length) return 0;
        constexpr std::uint64_t kPower = power(length);
        const std::uint64_t before = event(now() - length).until * kPower;
        const std::uint64_t context = mix(length, event(now()).until - before);
        Place& place = places[context % kPlaces];
        const Position found = place.context == context && place.at >= begin_ ? place.at : 0;
        place = {context, now()};
        return found;
    }

    // After each piece of work. Tries another age when the one that was tried has not made the program
    // foreseeable, and chunks were known by themselves that did not stay.
    void judge() {
        trust_ += ((came_true_ ? 1.0 : 0.0) - trust_) * kWeight;
        true_since_ += came_true_;
        const Works tried = works_ - age_since_;
        if (tried < kTrial * age_) return;
        const bool settled = static_cast<double>(true_since_) > kSettled * static_cast<double>(tried);
        if (!settled && longest_life_ != 0)
            age_ = age_ < kMostAge ? std::bit_ceil(std::min(longest_life_, kRaise * age_)) : kLeastAge;
        age_since_ = works_;
        true_since_ = 0;
        longest_life_ = 0;
    }

    // By position, in a circle; empty before the first work.
    std::vector<Event> events_;
    std::vector<std::uint32_t> uses_;
    std::vector<Place> long_places_, short_places_;  // by context
    std::vector<Role> roles_;
    std::vector<std::uint32_t> free_roles_;
    std::vector<Chunk> chunks_;
    Position begin_ = 1, end_ = 1;  // of the history
    std::uint64_t uses_end_ = 0;
    std::uint64_t bytes_in_use_ = 0;  // of chunks that work has named
    Position match_ = 0;              // the event of the past that the latest is taken for; 0: none
    bool came_true_ = false;          // the latest was foretold
    unsigned strays_ = 0;             // events since one of those foretold
    double trust_ = 0;
    std::uint64_t epoch_ = 0;
    Works works_ = 0;  // so far
    Works age_ = kLeastAge, age_since_ = 0;
    Works true_since_ = 0;    // of those since then, foretold
    Works longest_life_ = 0;  // of the chunks that were known by themselves and removed since then; 0: none
};

}  // namespace lms::policy

// Repetition in what a program does: an on-line search for the place in its past that it repeats now, and for
// what followed there.
//
// Every piece of work and every new allocation is an event with a token. While tokens follow one another as
// they did at an earlier place in the history, what comes next is what came next there.
//
// - The token of an allocation is its size. That of work tells the chunks it names, in any order: by
//   themselves those that have lived long, by size those that the next iteration will have anew.
// - What chunks have in common from one iteration to the next is their role. A chunk that is added where one
//   was added in the past, of an allocation of that size, takes that one's role, if it is free. Of an
//   allocation that has more chunks than that one had, the rest do as its first.
// - What a step makes for itself may be of another size, or lie elsewhere, each time. Then no work that names
//   it is foretold, and rougher tokens are followed: allocations are alike, and of a piece of work counts the
//   oldest chunk alone that has rested since it was last named. Such a chunk is called a weight.
// - Ages, and trust in what is foretold, are counted in pieces of work. Allocations alone would often come
//   true: most are of few sizes.
//
// A Track tells where in its past the program is. Pure; the caller serialises. Memory is bounded by kEvents
// and kUses. Calls may throw std::bad_alloc.
#pragma once

#include <lms/policy.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "policy/track.h"

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
        if (told && (first || all_.token() != token)) begin_event(token, kAdded);
        std::uint32_t role = kNoRole;
        const Position then = place();
        const bool is_same = followed().token_of_place() == (by_rough_ ? kAdded : token);
        if (then != 0 && is_same && event(then).count > event(now()).count)
            role = uses_[(event(then).first + event(now()).count) % kUses];
        if (role == kNoRole || roles_[role].chunk != LMS_NO_CHUNK) role = new_role();
        roles_[role].chunk = chunk;
        if (first || first_role_ == kNoRole) first_role_ = role;
        chunks_[chunk] = {role, first_role_, works_, bytes};
        if (told) name(role);
    }

    void removed(std::uint32_t chunk) {
        const std::uint32_t role = role_of(chunk);
        if (role == kNoRole) return;
        if (is_aged(chunks_[chunk])) longest_life_ = std::max(longest_life_, works_ - chunks_[chunk].born);
        if (chunks_[chunk].worked) bytes_in_use_ -= chunks_[chunk].bytes;
        roles_[role].chunk = LMS_NO_CHUNK;
        if (!events_.empty()) note(roles_[role].ends, end_);
        chunks_[chunk] = {};
        recycle(role);
    }

    void work(std::span<const std::uint32_t> chunks) {
        if (events_.empty()) begin_history();
        std::uint64_t token = kWork, weight = 0;
        std::pair<Works, std::uint32_t> oldest{~Works{0}, 0};
        varies_ = all_.trust() < kSure;
        ++works_;
        for (const std::uint32_t chunk : chunks) {
            const std::uint64_t look = look_of(chunk);
            token += mix(kWork, look);
            if (!varies_ || !has_rested(chunk) || std::pair(chunks_[chunk].born, chunk) >= oldest) continue;
            oldest = {chunks_[chunk].born, chunk};
            weight = look;
        }
        begin_event(token, weight != 0 ? weight : kWork);
        judge();
        if (weight != 0) rough_.judge();
        choose_track();
        for (const std::uint32_t chunk : chunks) {
            const std::uint32_t role = role_of(chunk);
            if (role == kNoRole) continue;
            name(role);
            Chunk& one = chunks_[chunk];
            if (!one.worked) bytes_in_use_ += one.bytes;
            one.worked = true;
            one.used = works_;
        }
        event(now()).bytes_in_use = bytes_in_use_;
    }

    // Whether more than `share` of the work was foretold lately.
    bool trusted(double share) const { return place() != 0 && followed().trust() > share; }
    // The latest event, the one of the past that it is taken for, and how far back that is. What came between
    // the two is foretold to come again: its positions stand for those to come.
    Position now() const { return end_ - 1; }
    Position place() const { return followed().place(); }
    Position lag() const { return now() - place(); }
    // Changes when next_use() or next_end() may answer anew for other chunks than those just named.
    std::uint64_t epoch() const { return changes_ + followed().jumps(); }

    // The event that is foretold to name the chunk next, and the one before which it is foretold to be given
    // back; kNever if none is.
    Position next_use(std::uint32_t chunk) const { return next_of(chunk, &Role::uses); }
    Position next_end(std::uint32_t chunk) const { return next_of(chunk, &Role::ends); }

    // Calls take(chunk, position) for the chunks of the events foretold after `from`, in order, until it
    // answers false or nothing more is foretold.
    template <typename Take>
    void foretold(Position from, Take&& take) const {
        if (place() == 0) return;
        for (Position at = std::max(from, place()) + 1; at <= now(); ++at) {
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
    // The pieces of work a chunk must have lived for to be known by itself: more than what an iteration makes
    // for itself lives. How many that are is found by trying. A number is tried for kTrial times as much
    // work, and the next is at most kRaise times as large.
    static constexpr Works kLeastAge = 64, kMostAge = 1 << 14, kTrial = 2, kRaise = 4;
    static constexpr double kSettled = 0.98;
    // The weights' track is kept while the other is trusted less. Works that a chunk has rested for that
    // counts as a weight. By how much more the weights' track must be trusted to be followed, and the other
    // to be again; where the other sees less far, it is the other that must be trusted more.
    static constexpr double kSure = 0.9;
    static constexpr Works kRest = 8;
    static constexpr double kBetter = 0.2, kBack = -0.05;
    static constexpr Position kFarther = 2;  // times as far as the other it sees, which is then followed
    static constexpr std::uint32_t kNoRole = ~std::uint32_t{0};
    static constexpr std::uint64_t kAdded = 0x9E3779B97F4A7C15, kWork = 0xD1B54A32D192ED03;

    struct Chunk {
        std::uint32_t role = kNoRole;
        // Its allocation's first chunk's, whose future it has where its role has no past.
        std::uint32_t like = kNoRole;
        Works born = 0;
        std::uint64_t bytes = 0;
        Works used = 0;
        bool worked = false;  // some work has named it
    };
    struct Event {
        std::uint64_t first = 0;  // of its uses, and how many
        std::uint32_t count = 0;
        std::uint64_t bytes_in_use = 0;
    };
    struct Role {
        std::uint32_t chunk = LMS_NO_CHUNK;  // what has it now
        std::uint32_t events = 0;            // in the history that name it
        std::vector<Position> uses;          // of those, and some of before; rising
        std::vector<Position> ends;          // before which what had it was given back; rising
    };
    Position next_of(std::uint32_t chunk, std::vector<Position> Role::*what) const {
        const std::uint32_t role = role_of(chunk);
        if (role == kNoRole || place() == 0) return kNever;
        const std::vector<Position>& uses = roles_[role].uses;
        const bool has_past = !uses.empty() && uses.front() <= place();
        const std::vector<Position>& events = roles_[has_past ? role : chunks_[chunk].like].*what;
        const auto next = std::upper_bound(events.begin(), events.end(), place());
        return next == events.end() ? kNever : *next;
    }

    static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
        const std::uint64_t x = (a ^ b) * 0xFF51AFD7ED558CCDull;
        return x ^ (x >> 32) ^ (a << 7);
    }

    std::uint32_t role_of(std::uint32_t chunk) const {
        return chunk < chunks_.size() ? chunks_[chunk].role : kNoRole;
    }
    std::uint64_t look_of(std::uint32_t chunk) const {
        if (chunk >= chunks_.size()) return 0;
        const Chunk& one = chunks_[chunk];
        return is_aged(one) ? mix(one.born, chunk) : one.bytes;
    }
    // Whether it is known by itself, and no work has named it just before.
    bool has_rested(std::uint32_t chunk) const {
        return chunk < chunks_.size() && is_aged(chunks_[chunk]) && works_ - chunks_[chunk].used > kRest;
    }
    const Track& followed() const { return by_rough_ ? rough_ : all_; }
    // Layers of a step may be so alike that all tokens are found in the layer before: what is foretold there
    // ends in that layer, and does not tell what is needed last.
    bool sees_less() const {
        return rough_.place() != 0 && kFarther * (now() - all_.place()) < now() - rough_.place();
    }
    void choose_track() {
        const Track& other = by_rough_ ? all_ : rough_;
        const double more = other.trust() - followed().trust();
        const double enough = by_rough_ ? (sees_less() ? kBetter : kBack) : (sees_less() ? 0 : kBetter);
        const bool stays = other.place() == 0 || more < enough;
        if (stays && (varies_ || !by_rough_)) return;
        changes_ += followed().jumps() + 1;
        by_rough_ = !by_rough_;
    }
    bool is_aged(const Chunk& chunk) const { return works_ - chunk.born > age_; }
    Event& event(Position at) { return events_[at % kEvents]; }
    const Event& event(Position at) const { return events_[at % kEvents]; }

    void begin_history() {
        uses_.resize(kUses);
        events_.resize(kEvents);
    }

    void begin_event(std::uint64_t token, std::uint64_t rough) {
        while (end_ - begin_ >= kEvents) forget_oldest();
        event(end_) = {uses_end_, 0, bytes_in_use_};
        all_.follow(token, end_);
        if (varies_) rough_.follow(rough, end_);
        ++end_;
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
        note(one.uses, at);
    }
    // Where it is full, as many as remain find room beside them: so a role that is named by every event does
    // not have them moved by every one.
    void note(std::vector<Position>& events, Position at) {
        if (!events.empty() && events.back() == at) return;
        if (events.size() == events.capacity()) {
            events.erase(events.begin(), std::lower_bound(events.begin(), events.end(), begin_));
            events.reserve(2 * events.size());
        }
        events.push_back(at);
    }

    void forget_oldest() {
        const Event gone = event(begin_++);
        for (std::uint64_t i = gone.first; i < gone.first + gone.count; ++i) {
            const std::uint32_t role = uses_[i % kUses];
            --roles_[role].events;
            recycle(role);
        }
        all_.forget_before(begin_);
        rough_.forget_before(begin_);
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
        roles_[role].ends.clear();
        free_roles_.push_back(role);
    }

    // After each piece of work. Tries another age when the one that was tried has not made the program
    // foreseeable, and chunks were known by themselves that did not stay.
    void judge() {
        all_.judge();
        true_since_ += all_.came_true();
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
    std::vector<Role> roles_;
    std::vector<std::uint32_t> free_roles_;
    std::vector<Chunk> chunks_;
    Position begin_ = 1, end_ = 1;  // of the history
    std::uint64_t uses_end_ = 0;
    std::uint64_t bytes_in_use_ = 0;  // of chunks that work has named
    Track all_{kEvents};              // of all events
    Track rough_{kEvents};       // the same without sizes: allocations are alike, and works but for weights
    bool varies_ = false;        // the second is kept
    bool by_rough_ = false;      // and followed
    std::uint64_t changes_ = 0;  // of the track that is followed
    std::uint32_t first_role_ = kNoRole;  // of the first chunk of the latest allocation
    Works works_ = 0;                     // so far
    Works age_ = kLeastAge, age_since_ = 0;
    Works true_since_ = 0;    // of those since then, foretold
    Works longest_life_ = 0;  // of the chunks that were known by themselves and removed since then; 0: none
};

}  // namespace lms::policy

// next-use: the chunk that is needed last goes first, as far as the program repeats itself; lru where it does
// not.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "policy/adapter.h"
#include "policy/builtin.h"
#include "policy/chunk_list.h"
#include "policy/growth.h"
#include "policy/repetition.h"

namespace lms::policy {
namespace {

// What must have come true of what was foretold: for choosing what goes, which is no worse than another
// choice where it is wrong, and for bringing something in, which costs a transfer.
constexpr double kEnoughToChoose = 0.5;
constexpr double kEnoughToBring = 0.8;

class NextUse {
  public:
    explicit NextUse(const lms_policy_config& config) noexcept
        : threshold_bytes_(config.threshold_bytes), frac_(config.frac) {}

    bool is_managed(std::uint64_t bytes) const { return bytes >= threshold_bytes_; }

    std::uint64_t eviction_start(const lms_policy_pressure& pressure) {
        limit_bytes_ = frac_ >= 0 ? share_of(pressure.budget_bytes, frac_) : pressure.budget_bytes;
        return limit_bytes_;
    }

    void added(const lms_policy_chunk& chunk) {
        if (chunk.chunk >= chunks_.size()) chunks_.resize(std::size_t{chunk.chunk} + 1);
        recent_.reserve(chunk.chunk);
        // Of one that had this number it may be known that its key is wrong.
        chunks_[chunk.chunk] = {.outdated = chunks_[chunk.chunk].outdated, .bytes = chunk.bytes};
        // An older shim does not tell of the allocation: each chunk is taken for one.
        const bool told =
            chunk.size >= offsetof(lms_policy_chunk, allocation_bytes) + sizeof chunk.allocation_bytes;
        repetition_.added(chunk.chunk, chunk.bytes, told ? chunk.allocation_bytes : chunk.bytes,
                          !told || chunk.offset == 0);
        chunks_[chunk.chunk].last = repetition_.now();
        is_away(chunk.chunk);
    }
    // Its role is free for what is made in its place, which may be before its memory is given back.
    void freed(std::uint32_t chunk) { removed(chunk); }
    void removed(std::uint32_t chunk) {
        evicted(chunk);
        repetition_.removed(chunk);
    }
    void work(const lms_policy_work& work) {
        const std::span<const std::uint32_t> chunks(work.chunks, work.count);
        repetition_.work(chunks);
        for (const std::uint32_t chunk : chunks) {
            if (chunk >= chunks_.size()) continue;
            chunks_[chunk].last = repetition_.now();
            outdate(chunk);
        }
    }
    void used(const lms_policy_use& use) { recent_.move_to_back(use.chunk); }
    void resident(std::uint32_t chunk) {
        if (recent_.contains(chunk)) return;
        recent_.push_back(chunk);
        if (!recent_.contains(chunk)) return;
        resident_bytes_ += chunks_[chunk].bytes;
        outdate(chunk);
    }
    void evicted(std::uint32_t chunk) {
        if (!recent_.contains(chunk)) return;
        resident_bytes_ -= chunks_[chunk].bytes;
        recent_.remove(chunk);
        drop(chunk);
        is_away(chunk);
    }

    std::uint32_t next_victim(const lms_policy_request& request) {
        const bool ahead = request.purpose == LMS_PURPOSE_AHEAD;
        // Streams are in order: what was used last is idle last.
        if (request.purpose == LMS_PURPOSE_WAIT || !repetition_.trusted(kEnoughToChoose))
            return ahead ? LMS_NO_CHUNK : recent_.first_eligible(request);
        bring_up_to_date();
        const Position sooner = ahead ? not_before(when(request.sooner), request) : 0;
        for (auto it = order_.rbegin(); it != order_.rend() && it->first > sooner; ++it) {
            if (request.eligible(request.context, it->second) == 0) continue;
            return ahead ? it->second : instead_of(it->first, it->second, request);
        }
        return LMS_NO_CHUNK;
    }

    // What is needed last, as far as what the program is foretold to take before that lacks room.
    std::uint32_t leaving(const lms_policy_request& request) {
        if (!repetition_.trusted(kEnoughToBring)) return LMS_NO_CHUNK;
        growth_.look(repetition_);
        std::uint64_t room = limit_bytes_ - std::min(limit_bytes_, resident_bytes_);
        if (growth_before(kFar) <= room) return LMS_NO_CHUNK;
        bring_up_to_date();
        for (auto it = order_.rbegin(); it != order_.rend() && growth_before(it->first) > room; ++it) {
            if (request.eligible(request.context, it->second) != 0) return it->second;
            room += chunks_[it->second].bytes;
        }
        return LMS_NO_CHUNK;
    }

    std::uint32_t upcoming(std::uint32_t* out, std::uint32_t most) {
        if (!repetition_.trusted(kEnoughToBring)) return 0;
        if (epoch_there_ != repetition_.epoch()) there_until_ = 0;
        epoch_there_ = repetition_.epoch();
        growth_.look(repetition_);
        std::uint32_t count = 0;
        std::uint64_t room = limit_bytes_ - std::min(limit_bytes_, resident_bytes_);
        Position seen = std::max(there_until_, repetition_.place());
        Position end = Repetition::kNever;
        repetition_.foretold(seen, [&](std::uint32_t chunk, Position at) {
            if (at > end) return false;
            if (count == 0) seen = at - 1;
            // What is needed before is among those already, or another is foretold to have its role by then.
            if (recent_.contains(chunk) || needed_until(chunk) < at) return true;
            if (is_for_others(room, at, chunks_[chunk].bytes)) return false;
            room -= std::min(room, chunks_[chunk].bytes);
            if (count == 0) end = at + kEventsEach * most;
            out[count++] = chunk;
            return count < most;
        });
        there_until_ = seen;
        return count;
    }

  private:
    using Position = Repetition::Position;
    // Events that are looked at for each chunk asked for, after the first that is foretold and not on the
    // device.
    static constexpr Position kEventsEach = 32;
    // Events within which a chunk comes in whatever goes for it, if that is needed later, and within which
    // what is given back is worth no copy; before that what goes must be needed so many times later.
    static constexpr Position kSoon = 2, kPatience = 4;
    // Iterations for which it counts that the GPU has waited for copies in.
    static constexpr Position kWaits = 2;
    // Above every position: what is not known to be needed again, the least recently used last.
    static constexpr Position kFar = Position{1} << 62;

    struct Chunk {
        Position last = 0;  // event that named it
        Position key = 0;   // in order_; 0: it is not there
        bool outdated = false;
        std::uint64_t bytes = 0;
    };

    // When it is used next. What is given back before takes room until then.
    Position needed_until(std::uint32_t chunk) const {
        return std::min(repetition_.next_use(chunk), repetition_.next_end(chunk));
    }
    // The event of the past that stands for when a chunk is thought to be needed next. Of one that nothing is
    // foretold of: its last use, and never once that has passed.
    Position when(std::uint32_t chunk) const {
        const Position until = needed_until(chunk);
        if (until != Repetition::kNever) return until;
        if (chunk >= chunks_.size()) return kFar;
        const Position last = chunks_[chunk].last;
        return last > repetition_.place() ? last : 2 * kFar - last;
    }

    // Whether of `room`, which is free, the program is foretold to take so much before `at` that `bytes` will
    // be too many: what came in there would only go again. Where nothing is free, what is needed later goes
    // for it.
    bool is_for_others(std::uint64_t room, Position at, std::uint64_t bytes) const {
        return room >= bytes && room - bytes < growth_before(at);
    }
    std::uint64_t growth_before(Position at) const {
        return growth_.before(at, repetition_.bytes_in_use(repetition_.place()));
    }

    // What goes in place of `last`, which is needed at `at`: a chunk that is given back before, because it
    // will not have to come in again. It stays if the program has more in use after that than before, so that
    // `last` must leave all the same, and if it is given back soon: its copy out would be wasted.
    std::uint32_t instead_of(Position at, std::uint32_t last, const lms_policy_request& request) {
        if (ending_.empty()) return last;
        growth_.look(repetition_);
        const std::uint64_t growth = growth_before(at);
        for (auto it = ending_.lower_bound({at, 0}); it != ending_.begin();) {
            --it;
            if (it->first <= repetition_.place() + kSoon || growth > growth_before(it->first)) break;
            if (request.eligible(request.context, it->second) != 0) return it->second;
        }
        return last;
    }

    // When what goes for the sake of a chunk that is needed at `next` must not be needed yet. What is swapped
    // early is swapped again when something else is needed last: the less, the later it is done. But a link
    // that is idle while the GPU waits costs time, not only bytes.
    Position not_before(Position next, const lms_policy_request& request) const {
        const Position ahead = next - std::min(next, repetition_.place());
        if (ahead <= kSoon || next >= kFar || gpu_waits(request)) return next;
        return repetition_.place() + kPatience * ahead;
    }
    bool gpu_waits(const lms_policy_request& request) const {
        // An older shim tells of no copies, or of no waits.
        if (request.size < offsetof(lms_policy_request, links) + sizeof request.links) return false;
        lms_policy_links links{.size = sizeof links, .works_since_wait = LMS_NOT_KNOWN};
        return request.links != nullptr && request.links(request.context, &links) != 0 &&
               links.works_since_wait <= kWaits * repetition_.lag();
    }

    void is_away(std::uint32_t chunk) {
        const Position next = repetition_.next_use(chunk);
        if (next != Repetition::kNever) there_until_ = std::min(there_until_, next - 1);
    }

    void outdate(std::uint32_t chunk) {
        if (chunk >= chunks_.size() || chunks_[chunk].outdated) return;
        chunks_[chunk].outdated = true;
        outdated_.push_back(chunk);
    }
    void drop(std::uint32_t chunk) {
        if (chunks_[chunk].key != 0) order_.erase({chunks_[chunk].key, chunk});
        if (chunks_[chunk].key != 0) ending_.erase({chunks_[chunk].key, chunk});
        chunks_[chunk].key = 0;
    }
    void place(std::uint32_t chunk) {
        drop(chunk);
        chunks_[chunk].outdated = false;
        if (!recent_.contains(chunk)) return;
        chunks_[chunk].key = when(chunk);
        order_.insert({chunks_[chunk].key, chunk});
        if (repetition_.next_end(chunk) == chunks_[chunk].key) ending_.insert({chunks_[chunk].key, chunk});
    }
    void bring_up_to_date() {
        if (epoch_ordered_ != repetition_.epoch()) {
            for (const auto& [key, chunk] : order_) outdate(chunk);
            epoch_ordered_ = repetition_.epoch();
        }
        for (const std::uint32_t chunk : outdated_) place(chunk);
        outdated_.clear();
        // What was foretold for a time that has passed was not so.
        while (!order_.empty() && order_.begin()->first <= repetition_.place()) place(order_.begin()->second);
    }

    std::uint64_t threshold_bytes_;
    double frac_;
    std::uint64_t limit_bytes_ = 0, resident_bytes_ = 0;
    Repetition repetition_;
    Growth growth_;
    ChunkList recent_;  // on the device, least recently used first
    std::vector<Chunk> chunks_;
    std::vector<std::uint32_t> outdated_;                  // whose key may be wrong
    std::set<std::pair<Position, std::uint32_t>> order_;   // on the device, by when they are needed
    std::set<std::pair<Position, std::uint32_t>> ending_;  // of those, foretold to be given back before
    std::uint64_t epoch_ordered_ = 0, epoch_there_ = 0;    // of the repetition that these were made in
    Position there_until_ = 0;                             // what is foretold for up to then is on the device
};

}  // namespace

constinit const lms_policy kNextUse = table_of<NextUse>("next-use");

}  // namespace lms::policy

#ifdef LMS_POLICY_PLUGIN
const lms_policy* lms_policy_get(std::uint32_t abi_version) {
    return abi_version == LMS_POLICY_ABI_VERSION ? &lms::policy::kNextUse : nullptr;
}
#endif

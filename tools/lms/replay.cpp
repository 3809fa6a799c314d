#include "tools/lms/replay.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "policy/host.h"
#include "shim/engine/arena.h"
#include "shim/engine/chunking.h"
#include "shim/engine/residency.h"
#include "tools/lms/foreseen.h"
#include "tools/lms/pace.h"
#include "tools/lms/progress.h"

namespace lms::tool {
namespace {

using engine::ChunkId;
using Step = ReplayScript::Step;
using Touch = ReplayScript::Touch;

// Works run one after the other, for as long as they took; copies run beside them, one each way at a time.
class Replay final : engine::Asker {
  public:
    Replay(const ReplayScript& script, const ReplayWith& with)
        : script_(script),
          with_(with),
          ranking_(make_ranking(with)),
          residency_(script.granularity, kSpan, script.granularity, *ranking_),
          arena_(script.granularity, kSpan, script.granularity, 0),
          ids_(script.chunks, engine::kNoChunk),
          buffers_(script.buffers.size()),
          pace_(script.streams),
          fitting_(script.streams),
          unfinished_(script.streams) {}

    Replayed run() {
        first_use();
        Progress progress("replaying by " + with_.policy, script_.steps.size());
        std::uint64_t done = 0;
        for (const Step& step : script_.steps) {
            progress.at(done++);
            note_peaks();
            if (step.kind == Step::Kind::Allocate) allocate(step.buffer);
            if (step.kind == Step::Kind::Free) free(step.buffer);
            if (step.kind == Step::Kind::StreamFree) stream_free(step);
            if (step.kind == Step::Kind::Revive) revive(step);
            if (step.kind == Step::Kind::Work) work(step);
            if (step.kind == Step::Kind::Budget) change_budget(step.budget_bytes);
            if (result_.reached.size() < with_.marks.size() && with_.marks[result_.reached.size()] < done)
                note_reached();
        }
        result_.seconds = pace_.now;
        result_.fitting_seconds = fitting_.now;
        return result_;
    }

  private:
    static constexpr std::uint64_t kSpan = std::uint64_t{1} << 46;
    // That the shim copies out before there is need (ahead_bytes() in shim/executor/eviction.cpp).
    static constexpr std::uint64_t kChunksAhead = 2;
    // Of one look, as the shim takes: a policy may ask for what it has just let go.
    static constexpr int kMostStepsAhead = 64;
    static constexpr int kFewCopies = 2;
    static constexpr std::size_t kDeep = 16;

    struct Place {
        bool fresh = false;  // its contents are undefined
        double idle_at = 0;  // the last work that used it is over
        double ready_at = 0;
        std::uint64_t clean = 0;  // while nothing has written it: soilings_ when it came in
    };

    // It is being copied to the host, unless it needs no copy.
    struct Leaving {
        ChunkId chunk;
        double copied_at;
        bool copies;
        bool foretold = false;
    };

    struct Dead {
        std::uint32_t buffer;  // of the script
        std::uint32_t stream;
        double reached_at;  // by its stream
    };

    std::unique_ptr<engine::Ranking> make_ranking(const ReplayWith& with) {
        if (with.policy != kFewestBytes && with.policy != kForesight)
            return policy::Host::create(with.policy, with.frac, with.threshold_bytes);
        auto made = std::make_unique<Foreseen>(with.policy == kForesight);
        foreseen_ = made.get();
        return made;
    }

    // By chunk of the script, the first work that uses it.
    void first_use() {
        first_use_.assign(script_.chunks, ReplayScript::kNever);
        for (std::size_t i = script_.steps.size(); i-- > 0;) {
            for (const Touch& touch : script_.touched_by(script_.steps[i]))
                first_use_[touch.chunk] = static_cast<std::uint32_t>(i);
        }
    }

    void note_peaks() {
        result_.peak_bytes = std::max(result_.peak_bytes, residency_.allocated_bytes());
        result_.peak_host_bytes =
            std::max(result_.peak_host_bytes, residency_.host_bytes() + leaving_bytes());
    }

    void note_reached() {
        result_.reached.push_back({std::max(pace_.now, *std::ranges::max_element(pace_.free)),
                                   std::max(fitting_.now, *std::ranges::max_element(fitting_.free)),
                                   result_.bytes_in, result_.bytes_out});
    }

    std::uint64_t start() { return std::min(residency_.eviction_start(budget_bytes_), budget_bytes_); }

    // What the rest of the GPU takes must go from it.
    void change_budget(std::uint64_t bytes) {
        budget_bytes_ = bytes;
        make_room(0, bytes, engine::kNoChunk);
    }

    void allocate(std::uint32_t number) {
        give_back_dead();
        const ReplayScript::Buffer& buffer = script_.buffers[number];
        std::uint64_t bytes = 0;
        for (const std::uint64_t chunk : buffer.chunk_bytes) bytes += chunk;
        const auto address = bytes == 0 ? std::nullopt : arena_.take(bytes);
        if (!address) return;
        const engine::AllocationId id = residency_.add(*address, buffer.asked_bytes, buffer.chunk_bytes);
        buffers_[number] = id;
        const std::vector<ChunkId> chunks = residency_.allocation(id).chunks;
        for (std::uint32_t i = 0; i < chunks.size(); ++i) {
            const ChunkId chunk = chunks[i];
            ids_[buffer.first_chunk + i] = chunk;
            places_.resize(std::max<std::size_t>(places_.size(), chunk + 1));
            places_[chunk] = {};
            if (foreseen_) foreseen_->will_be_used(chunk, first_use_[buffer.first_chunk + i]);
            if (residency_.device_bytes() + residency_.chunk(chunk).bytes <= start()) {
                residency_.begin_in(chunk);
                residency_.mapped_empty(chunk);
            } else if (script_.maps_host) {
                residency_.back_by_host(chunk);
                places_[chunk].fresh = true;
            }
        }
    }

    // Or else a damaged trace frees it again.
    bool is_live(std::uint32_t number) const {
        return buffers_[number] && !residency_.allocation(*buffers_[number]).dead;
    }

    // What is dead goes when its stream is there.
    void free(std::uint32_t number) {
        if (is_live(number)) give_back(number);
    }

    void stream_free(const Step& step) {
        if (!is_live(step.buffer)) return;
        for (const ChunkId chunk : residency_.allocation(*buffers_[step.buffer]).chunks) keep(chunk);
        residency_.kill(*buffers_[step.buffer]);
        dead_.push_back({step.buffer, step.stream, pace_.free[step.stream]});
    }

    // It has the chunks of the newest dead buffer of its stream and size as they are, if there is one still.
    void revive(const Step& step) {
        const ReplayScript::Buffer& buffer = script_.buffers[step.buffer];
        const auto found = std::find_if(dead_.rbegin(), dead_.rend(), [&](const Dead& dead) {
            return dead.stream == step.stream &&
                   script_.buffers[dead.buffer].chunk_bytes == buffer.chunk_bytes;
        });
        if (found == dead_.rend()) return allocate(step.buffer);
        const std::uint32_t before = found->buffer;
        dead_.erase(std::next(found).base());
        give_back_dead();
        const engine::AllocationId id = *std::exchange(buffers_[before], {});
        buffers_[step.buffer] = id;
        residency_.revive(id, buffer.asked_bytes);
        for (std::uint32_t i = 0; i < buffer.chunk_bytes.size(); ++i) {
            const ChunkId chunk =
                std::exchange(ids_[script_.buffers[before].first_chunk + i], engine::kNoChunk);
            ids_[buffer.first_chunk + i] = chunk;
            if (foreseen_) foreseen_->will_be_used(chunk, first_use_[buffer.first_chunk + i]);
        }
    }

    // What is dead, and whose stream is there. Whether there was some.
    bool give_back_dead() {
        return std::erase_if(dead_, [this](const Dead& dead) {
                   if (dead.reached_at > pace_.now) return false;
                   give_back(dead.buffer);
                   return true;
               }) > 0;
    }

    // When the next of what is dead can be given back.
    double dead_reached_at() const {
        double soonest = std::numeric_limits<double>::infinity();
        for (const Dead& dead : dead_) soonest = std::min(soonest, dead.reached_at);
        return soonest;
    }

    void give_back(std::uint32_t number) {
        const engine::Allocation buffer = residency_.allocation(*buffers_[number]);
        for (const ChunkId chunk : buffer.chunks) keep(chunk);
        residency_.remove(*buffers_[number]);
        arena_.give_back(buffer.address, buffer.bytes);
        for (std::size_t i = 0; i < buffer.chunks.size(); ++i)
            ids_[script_.buffers[number].first_chunk + i] = engine::kNoChunk;
        buffers_[number].reset();
    }

    bool is_here(ChunkId chunk) const { return residency_.chunk(chunk).state == engine::State::Resident; }

    void work(const Step& step) {
        std::vector<ChunkId> chunks;
        for (const Touch& touch : script_.touched_by(step)) {
            if (ids_[touch.chunk] != engine::kNoChunk) chunks.push_back(ids_[touch.chunk]);
        }
        tell(step, chunks);
        const bool deep = is_deep(step.stream);
        if (step.writes_unseen) ++soilings_;
        // What is there is kept, and then what has come in.
        for (const ChunkId chunk : chunks) keep(chunk);
        for (const ChunkId chunk : chunks) residency_.pin(chunk);
        double ready = 0;
        bool in_place = false;
        bool lacked = false;
        for (const Touch& touch : script_.touched_by(step)) {
            const ChunkId chunk = ids_[touch.chunk];
            if (chunk == engine::kNoChunk) continue;
            const bool stays = touch.may_stay && residency_.chunk(chunk).state == engine::State::OnHost;
            if (!is_here(chunk) && !stays) {
                lacked = true;
                in_place |= !bring_in(chunk, touch.overwritten);
            }
            if (!touch.only_read || step.writes_unseen) places_[chunk].clean = 0;
            places_[chunk].fresh = false;
            ready = std::max(ready, places_[chunk].ready_at);
        }
        result_.in_place += in_place;
        if (lacked) {
            start_to_leave(0, {0, engine::Purpose::Room, engine::kNoChunk, this});
            came_in_at_ = pace_.now;
        }
        for (const ChunkId chunk : chunks) residency_.unpin(chunk);
        if (deep) pace_.now = std::max(pace_.now, ready);
        const double end = pace_.submit(step, ready);
        unfinished_[step.stream].push_back(end);
        fitting_.submit(step, 0);
        fitting_.now = fitting_.next(step);
        for (const Touch& touch : script_.touched_by(step)) {
            const ChunkId chunk = ids_[touch.chunk];
            if (chunk == engine::kNoChunk) continue;
            places_[chunk].idle_at = std::max(places_[chunk].idle_at, end);
            if (foreseen_) foreseen_->will_be_used(chunk, touch.next_work);
        }
        const double from = pace_.waits_from(step), until = pace_.waits_until(step), next = pace_.next(step);
        look_ahead();
        if (step.waits) bring_ahead(from, until);
        pace_.now = std::max(pace_.now, next);
    }

    // A stream with so much before it is not made to wait for what comes in: the program is
    // (Fences::is_deep).
    bool is_deep(std::uint32_t stream) {
        std::deque<double>& ends = unfinished_[stream];
        while (!ends.empty() && ends.front() <= pace_.now) ends.pop_front();
        return ends.size() >= kDeep;
    }

    void tell(const Step& step, std::span<const ChunkId> chunks) {
        if (!residency_.wants_facts()) return residency_.work(chunks, nullptr);
        std::vector<std::uint8_t> access;
        for (const Touch& touch : script_.touched_by(step)) {
            if (ids_[touch.chunk] == engine::kNoChunk) continue;
            access.push_back(touch.only_read     ? engine::kAccessRead
                             : touch.overwritten ? engine::kAccessWritten | engine::kAccessWhole
                                                 : engine::kAccessUnknown);
        }
        const engine::WorkFacts facts{step.stream, step.code, access};
        residency_.work(chunks, &facts);
    }

    engine::Candidate candidate(ChunkId chunk) override {
        const double idle_at = std::max(places_[chunk].idle_at, places_[chunk].ready_at);
        return {residency_.chunk(chunk).bytes, needs_no_copy(chunk),
                static_cast<std::uint64_t>(std::max(0., idle_at - pace_.now) * 1e9)};
    }
    engine::Links links() override {
        const auto queued = [this](double free, double bytes_per_s) {
            return static_cast<std::uint64_t>(std::max(0., free - pace_.now) * bytes_per_s);
        };
        return {queued(in_free_, with_.in_bytes_per_s), queued(out_free_, with_.out_bytes_per_s),
                static_cast<std::uint64_t>(with_.in_bytes_per_s),
                static_cast<std::uint64_t>(with_.out_bytes_per_s)};
    }
    void overruled() override {}

    // What is foretold comes in while the program waits, as it does when work has been submitted.
    void bring_ahead(double from, double until) {
        pace_.now = std::max(pace_.now, from);
        while (look_ahead()) {
            const double then = next_change();
            if (then >= std::min(until, *std::ranges::max_element(pace_.free))) return;
            pace_.now = then;
        }
    }

    // Gets as far as it does without waiting; false: nothing is foretold that could move.
    bool look_ahead() {
        const bool more_in = bring_in_ahead();
        return evict_ahead() || more_in;
    }

    bool evict_ahead() {
        for (auto each = leaving_.begin(); each != leaving_.end();) {
            const bool goes = each->foretold && each->copied_at <= pace_.now;
            if (goes) put_out(each);
            each = goes ? leaving_.begin() : each + 1;
        }
        for (;;) {
            const auto under_way = std::ranges::count_if(
                leaving_, [&](const Leaving& each) { return each.copies && each.copied_at > pace_.now; });
            if (under_way >= kFewCopies) return true;
            bool busy = false;
            const ChunkId victim = residency_.next_victim(
                {1, engine::Purpose::Foretold, engine::kNoChunk, this}, [&](ChunkId id) {
                    if (needs_no_copy(id)) return false;
                    const bool used = idle_at(id) > pace_.now;
                    busy |= used;
                    return !used;
                });
            if (victim == engine::kNoChunk) return busy || under_way > 0;
            leave(victim);
            leaving_.back().foretold = true;
        }
    }

    bool bring_in_ahead() {
        std::array<ChunkId, 8> next{};
        for (int steps = 0; steps < kMostStepsAhead; ++steps) {
            if (pace_.now < few_fills_at()) return true;
            const std::size_t count = residency_.upcoming(next);
            const auto able = std::find_if(next.begin(), next.begin() + count, [&](ChunkId chunk) {
                return chunk < places_.size() && residency_.chunk(chunk).state == engine::State::OnHost;
            });
            if (able == next.begin() + count) return false;
            if (!bring_in_ahead(*able)) return true;
        }
        return true;
    }

    bool bring_in_ahead(ChunkId chunk) {
        const std::uint64_t bytes = residency_.chunk(chunk).bytes;
        const std::uint64_t limit = start();
        while (lacking(bytes, limit) > 0) {
            start_to_leave(bytes, {bytes, engine::Purpose::Ahead, chunk, this});
            const auto next = next_to_leave();
            if (next == leaving_.end() || next->copied_at > pace_.now) return false;
            put_out(next);
        }
        fill(chunk, false);
        ++result_.fills_ahead;
        return true;
    }

    // When no more copies in are left to run than the shim has before it chooses what goes.
    double few_fills_at() const { return fills_[result_.fills % fills_.size()]; }

    // When the next work or copy is over.
    double next_change() const {
        double next = std::numeric_limits<double>::infinity();
        const auto consider = [&](double at) {
            if (at > pace_.now) next = std::min(next, at);
        };
        for (std::size_t i = pace_.ends.size(); i-- > 0 && pace_.ends[i] > pace_.now;)
            consider(pace_.ends[i]);
        for (const Leaving& each : leaving_) consider(each.copied_at);
        for (const double at : fills_) consider(at);
        return next;
    }

    // How much must go for `bytes` more to be within `limit`.
    std::uint64_t lacking(std::uint64_t bytes, std::uint64_t limit) const {
        const std::uint64_t wanted = residency_.device_bytes() + bytes;
        return wanted - std::min(wanted, limit);
    }

    bool bring_in(ChunkId chunk, bool overwritten) {
        const std::uint64_t bytes = residency_.chunk(chunk).bytes;
        if (!make_room(bytes, start(), chunk) && !make_room(bytes, budget_bytes_, chunk)) return false;
        fill(chunk, overwritten);
        return true;
    }

    // Until `bytes` more are within `limit`, for the sake of that chunk; false: they do not come to be.
    bool make_room(std::uint64_t bytes, std::uint64_t limit, ChunkId chunk) {
        while (const std::uint64_t lacks = lacking(bytes, limit)) {
            if (give_back_dead()) continue;
            const engine::VictimRequest wanted{lacks, engine::Purpose::Room, chunk, this};
            if (leaving_bytes() < lacks) pace_.now = std::max(pace_.now, few_fills_at());
            start_to_leave(lacks, wanted);
            const auto next = next_to_leave();
            if (next == leaving_.end()) {
                if (limit < budget_bytes_ || !wait_for_idle(wanted)) return false;
            } else if (dead_reached_at() < next->copied_at) {
                pace_.now = std::max(pace_.now, dead_reached_at());
            } else {
                // The order with the fewest bytes chooses chunks in use: the link waits for them, not the
                // program.
                double& waits = fewest_bytes_ ? in_free_ : pace_.now;
                waits = std::max(waits, next->copied_at);
                put_out(next);
            }
        }
        return true;
    }

    // For what the policy says, or for what is dead if that can be given back sooner. False: nothing comes to
    // be.
    bool wait_for_idle(engine::VictimRequest wanted) {
        wanted.purpose = engine::Purpose::Wait;
        const ChunkId busy = residency_.next_victim(wanted, engine::Residency::InFlight::Accept);
        double until = dead_reached_at();
        if (busy != engine::kNoChunk && idle_at(busy) > pace_.now) until = std::min(until, idle_at(busy));
        if (until == std::numeric_limits<double>::infinity()) return false;
        pace_.now = until;
        return true;
    }

    bool needs_no_copy(ChunkId chunk) const { return places_[chunk].clean == soilings_; }

    double idle_at(ChunkId chunk) const { return std::max(places_[chunk].idle_at, places_[chunk].ready_at); }

    std::uint64_t leaving_bytes() const {
        std::uint64_t sum = 0;
        for (const Leaving& each : leaving_) sum += residency_.chunk(each.chunk).bytes;
        return sum;
    }

    // The policy chooses of what is idle until as much leaves as is to go `out`, and for Purpose::Room what
    // will be chosen next, as far as it needs a copy.
    void start_to_leave(std::uint64_t out, const engine::VictimRequest& wanted) {
        const std::uint64_t ahead =
            wanted.purpose == engine::Purpose::Room && !fewest_bytes_
                ? kChunksAhead * engine::largest_chunk(budget_bytes_, script_.granularity)
                : 0;
        for (std::uint64_t leaves = leaving_bytes(); leaves < out + ahead; leaves = leaving_bytes()) {
            const engine::VictimRequest rest{out + ahead - leaves, wanted.purpose, wanted.sooner, this};
            const ChunkId victim = residency_.next_victim(
                rest, [&](ChunkId id) { return fewest_bytes_ || idle_at(id) <= pace_.now; });
            if (victim == engine::kNoChunk || (leaves >= out && needs_no_copy(victim))) return;
            leave(victim);
        }
    }

    void leave(ChunkId chunk) {
        const bool copies = !needs_no_copy(chunk);
        // The order with the fewest bytes knew its victim when the last chunk came in.
        double copied_at =
            std::max(fewest_bytes_ ? std::min(pace_.now, came_in_at_) : pace_.now, idle_at(chunk));
        if (copies) {
            copied_at = std::max(copied_at, out_free_) +
                        static_cast<double>(residency_.chunk(chunk).bytes) / with_.out_bytes_per_s;
            out_free_ = copied_at;
        }
        residency_.begin_out(chunk);
        leaving_.push_back({chunk, copied_at, copies});
    }

    std::vector<Leaving>::iterator next_to_leave() {
        return std::ranges::min_element(leaving_, {}, &Leaving::copied_at);
    }

    // It does not leave, then.
    void keep(ChunkId chunk) {
        if (std::erase_if(leaving_, [&](const Leaving& each) { return each.chunk == chunk; }) > 0)
            residency_.cancel_out(chunk);
    }

    void put_out(std::vector<Leaving>::iterator which) {
        const Leaving each = *which;
        leaving_.erase(which);
        residency_.begin_remap(each.chunk);
        residency_.out(each.chunk);
        ++result_.evictions;
        pace_.now += with_.remap_seconds;
        places_[each.chunk].clean = 0;
        if (each.copies) result_.bytes_out += residency_.chunk(each.chunk).bytes;
    }

    void fill(ChunkId chunk, bool overwritten) {
        const bool copies = residency_.chunk(chunk).state == engine::State::OnHost &&
                            !(places_[chunk].fresh && (overwritten || with_.clears));
        const std::uint64_t bytes = residency_.chunk(chunk).bytes;
        residency_.begin_in(chunk);
        pace_.now += with_.remap_seconds;
        places_[chunk].ready_at = pace_.now;
        if (!copies) {
            residency_.mapped_empty(chunk);
            return;
        }
        residency_.begin_fill(chunk);
        residency_.filled(chunk);
        in_free_ = std::max(in_free_, pace_.now) + static_cast<double>(bytes) / with_.in_bytes_per_s;
        places_[chunk].ready_at = in_free_;
        if (with_.retains) places_[chunk].clean = soilings_;
        fills_[result_.fills % fills_.size()] = in_free_;
        result_.bytes_in += bytes;
        ++result_.fills;
    }

    const ReplayScript& script_;
    const ReplayWith& with_;
    const bool fewest_bytes_ = with_.policy == kFewestBytes;
    Foreseen* foreseen_ = nullptr;
    std::unique_ptr<engine::Ranking> ranking_;
    engine::Residency residency_;
    engine::Arena arena_;
    std::vector<ChunkId> ids_;                                  // by chunk of the script, while it is there
    std::vector<std::optional<engine::AllocationId>> buffers_;  // by buffer of the script
    std::vector<Leaving> leaving_;                              // in the order in which they were chosen
    std::vector<Dead> dead_;                                    // in the order in which they were freed
    std::vector<Place> places_;                                 // by ChunkId
    std::vector<std::uint32_t> first_use_;
    std::uint64_t budget_bytes_ = 0;
    std::uint64_t soilings_ = 1;  // works that may have written anything, and one
    Pace pace_;
    Pace fitting_;                                // if nothing had to move
    std::vector<std::deque<double>> unfinished_;  // by stream, when its works end
    std::array<double, 2> fills_{};               // the last so many: when they are there
    double in_free_ = 0;
    double out_free_ = 0;
    double came_in_at_ = 0;  // what a work lacked
    Replayed result_;
};

}  // namespace

Replayed replay(const ReplayScript& script, const ReplayWith& with) {
    return Replay(script, with).run();
}

}  // namespace lms::tool

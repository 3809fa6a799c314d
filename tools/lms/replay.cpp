#include "tools/lms/replay.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "policy/host.h"
#include "shim/core/arena.h"
#include "shim/core/residency.h"
#include "tools/lms/optimal.h"
#include "tools/lms/pace.h"
#include "tools/lms/progress.h"

namespace lms::tool {
namespace {

using core::ChunkId;
using Step = ReplayScript::Step;
using Touch = ReplayScript::Touch;

// Works run one after the other, for as long as they took; copies run beside them, one each way at a time.
class Replay final : core::Asker {
  public:
    Replay(const ReplayScript& script, const ReplayWith& with)
        : script_(script),
          with_(with),
          ranking_(make_ranking(with)),
          residency_(script.granularity, kSpan, script.granularity, *ranking_),
          arena_(script.granularity, kSpan, script.granularity, 0),
          ids_(script.chunks, core::kNoChunk),
          buffers_(script.buffers.size()),
          pace_(script.streams),
          fitting_(script.streams) {}

    Replayed run() {
        first_use();
        Progress progress("replaying by " + with_.policy, script_.steps.size());
        std::uint64_t done = 0;
        for (const Step& step : script_.steps) {
            progress.at(done++);
            if (step.kind == Step::Kind::Allocate) allocate(step.buffer);
            if (step.kind == Step::Kind::Free) free(step.buffer);
            if (step.kind == Step::Kind::StreamFree) stream_free(step);
            if (step.kind == Step::Kind::Revive) revive(step);
            if (step.kind == Step::Kind::Work) work(step);
            if (step.kind == Step::Kind::Budget) budget_bytes_ = step.budget_bytes;
        }
        result_.seconds = pace_.now;
        result_.fitting_seconds = fitting_.now;
        return result_;
    }

  private:
    static constexpr std::uint64_t kSpan = std::uint64_t{1} << 46;

    struct Place {
        bool fresh = false;  // its contents are undefined
        double idle_at = 0;  // the last work that used it is over
        double ready_at = 0;
        std::uint64_t clean = 0;  // while nothing has written it: soilings_ when it came in
    };

    struct Dead {
        std::uint32_t buffer;  // of the script
        double reached_at;     // by its stream
    };

    std::unique_ptr<core::Ranking> make_ranking(const ReplayWith& with) {
        if (with.policy != kOptimal)
            return policy::Host::create(with.policy, with.frac, with.threshold_bytes);
        auto made = std::make_unique<Optimal>();
        optimal_ = made.get();
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

    std::uint64_t start() { return std::min(residency_.eviction_start(budget_bytes_), budget_bytes_); }

    void allocate(std::uint32_t number) {
        give_back_dead();
        const ReplayScript::Buffer& buffer = script_.buffers[number];
        std::uint64_t bytes = 0;
        for (const std::uint64_t chunk : buffer.chunk_bytes) bytes += chunk;
        const auto address = bytes == 0 ? std::nullopt : arena_.take(bytes);
        if (!address) return;
        const core::AllocationId id = residency_.add(*address, buffer.asked_bytes, buffer.chunk_bytes);
        buffers_[number] = id;
        const std::vector<ChunkId> chunks = residency_.allocation(id).chunks;
        for (std::uint32_t i = 0; i < chunks.size(); ++i) {
            const ChunkId chunk = chunks[i];
            ids_[buffer.first_chunk + i] = chunk;
            places_.resize(std::max<std::size_t>(places_.size(), chunk + 1));
            places_[chunk] = {};
            if (optimal_) optimal_->will_be_used(chunk, first_use_[buffer.first_chunk + i]);
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
        residency_.kill(*buffers_[step.buffer]);
        dead_.push_back({step.buffer, pace_.free[step.stream]});
    }

    // It has the chunks of the one before as they are, if these are there still.
    void revive(const Step& step) {
        const auto before = std::ranges::find(dead_, step.before, &Dead::buffer);
        if (before == dead_.end()) return allocate(step.buffer);
        dead_.erase(before);
        const ReplayScript::Buffer& buffer = script_.buffers[step.buffer];
        const core::AllocationId id = *std::exchange(buffers_[step.before], {});
        buffers_[step.buffer] = id;
        residency_.revive(id, buffer.asked_bytes);
        for (std::uint32_t i = 0; i < buffer.chunk_bytes.size(); ++i) {
            const ChunkId chunk =
                std::exchange(ids_[script_.buffers[step.before].first_chunk + i], core::kNoChunk);
            ids_[buffer.first_chunk + i] = chunk;
            if (optimal_) optimal_->will_be_used(chunk, first_use_[buffer.first_chunk + i]);
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
        const core::Allocation buffer = residency_.allocation(*buffers_[number]);
        residency_.remove(*buffers_[number]);
        arena_.give_back(buffer.address, buffer.bytes);
        for (std::size_t i = 0; i < buffer.chunks.size(); ++i)
            ids_[script_.buffers[number].first_chunk + i] = core::kNoChunk;
        buffers_[number].reset();
    }

    bool is_here(ChunkId chunk) const { return residency_.chunk(chunk).state == core::State::Resident; }

    void work(const Step& step) {
        std::vector<ChunkId> chunks;
        for (const Touch& touch : script_.touched_by(step)) {
            if (ids_[touch.chunk] != core::kNoChunk) chunks.push_back(ids_[touch.chunk]);
        }
        tell(step, chunks);
        if (step.writes_unseen) ++soilings_;
        // What is there is kept, and then what has come in.
        for (const ChunkId chunk : chunks) residency_.pin(chunk);
        double ready = 0;
        bool in_place = false;
        for (const Touch& touch : script_.touched_by(step)) {
            const ChunkId chunk = ids_[touch.chunk];
            if (chunk == core::kNoChunk) continue;
            const bool stays = touch.may_stay && residency_.chunk(chunk).state == core::State::OnHost;
            if (!is_here(chunk) && !stays)
                in_place |= !bring_in(chunk, touch.overwritten, core::Purpose::Room);
            if (!touch.only_read || step.writes_unseen) places_[chunk].clean = 0;
            places_[chunk].fresh = false;
            ready = std::max(ready, places_[chunk].ready_at);
        }
        result_.in_place += in_place;
        for (const ChunkId chunk : chunks) residency_.unpin(chunk);
        const double end = pace_.submit(step, ready);
        fitting_.submit(step, 0);
        fitting_.now = fitting_.next(step);
        for (const Touch& touch : script_.touched_by(step)) {
            const ChunkId chunk = ids_[touch.chunk];
            if (chunk == core::kNoChunk) continue;
            places_[chunk].idle_at = std::max(places_[chunk].idle_at, end);
            if (optimal_) optimal_->will_be_used(chunk, touch.next_work);
        }
        const double next = pace_.next(step);
        bring_ahead(next);
        pace_.now = std::max(pace_.now, next);
    }

    void tell(const Step& step, std::span<const ChunkId> chunks) {
        if (!residency_.wants_facts()) return residency_.work(chunks, nullptr);
        std::vector<std::uint8_t> access;
        for (const Touch& touch : script_.touched_by(step)) {
            if (ids_[touch.chunk] == core::kNoChunk) continue;
            access.push_back(touch.only_read     ? core::kAccessRead
                             : touch.overwritten ? core::kAccessWritten | core::kAccessWhole
                                                 : core::kAccessUnknown);
        }
        const core::WorkFacts facts{step.stream, step.code, access};
        residency_.work(chunks, &facts);
    }

    core::Candidate candidate(ChunkId chunk) override {
        const double idle_at = std::max(places_[chunk].idle_at, places_[chunk].ready_at);
        return {residency_.chunk(chunk).bytes, needs_no_copy(chunk),
                static_cast<std::uint64_t>(std::max(0., idle_at - pace_.now) * 1e9)};
    }
    core::Links links() override {
        const auto queued = [this](double free, double bytes_per_s) {
            return static_cast<std::uint64_t>(std::max(0., free - pace_.now) * bytes_per_s);
        };
        return {queued(in_free_, with_.in_bytes_per_s), queued(out_free_, with_.out_bytes_per_s),
                static_cast<std::uint64_t>(with_.in_bytes_per_s),
                static_cast<std::uint64_t>(with_.out_bytes_per_s)};
    }
    void overruled() override {}

    // What is foretold comes in beside the work, while the program waits.
    void bring_ahead(double until) {
        std::array<ChunkId, 8> next{};
        for (;;) {
            if (pace_.now < few_fills_at()) {
                if (few_fills_at() >= until) return;
                pace_.now = few_fills_at();
            }
            const std::size_t count = residency_.upcoming(next);
            const auto able = std::find_if(next.begin(), next.begin() + count, [&](ChunkId chunk) {
                return chunk < places_.size() && residency_.chunk(chunk).state == core::State::OnHost;
            });
            if (able == next.begin() + count) return;
            if (bring_in(*able, false, core::Purpose::Ahead)) continue;
            const double then = next_end();
            if (then >= until) return;
            pace_.now = then;
        }
    }

    // When no more copies in are left to run than the shim has before it chooses what goes.
    double few_fills_at() const { return fills_[result_.fills % fills_.size()]; }

    // When the next work is over.
    double next_end() const {
        double next = std::numeric_limits<double>::infinity();
        for (std::size_t i = pace_.ends.size(); i-- > 0 && pace_.ends[i] > pace_.now;)
            next = std::min(next, pace_.ends[i]);
        return next;
    }

    // Makes room, as far as that is needed, and copies.
    bool bring_in(ChunkId chunk, bool overwritten, core::Purpose purpose) {
        const std::uint64_t bytes = residency_.chunk(chunk).bytes;
        double room_at = pace_.now;
        for (const std::uint64_t limit : {start(), budget_bytes_}) {
            while (residency_.device_bytes() + bytes > limit) {
                if (give_back_dead()) continue;
                const core::VictimRequest wanted{residency_.device_bytes() + bytes - limit, purpose, chunk,
                                                 this};
                if (purpose == core::Purpose::Room) pace_.now = std::max(pace_.now, few_fills_at());
                const ChunkId victim = residency_.next_victim(
                    wanted, [&](ChunkId id) { return optimal_ || places_[id].idle_at <= pace_.now; });
                if (purpose == core::Purpose::Room && victim != core::kNoChunk &&
                    dead_reached_at() < copied_out_at(victim)) {
                    pace_.now = std::max(pace_.now, dead_reached_at());
                } else if (victim != core::kNoChunk) {
                    room_at = std::max(room_at, put_out(victim));
                } else if (limit < budget_bytes_ || !wait_for_idle(wanted)) {
                    break;
                }
            }
            if (residency_.device_bytes() + bytes <= limit) {
                if (purpose == core::Purpose::Room) looked_ahead_at_ = pace_.now;
                fill(chunk, overwritten, room_at);
                return true;
            }
            if (purpose == core::Purpose::Ahead) return false;
        }
        return false;
    }

    // For what the policy says, else for what is dead. False: nothing comes to be.
    bool wait_for_idle(core::VictimRequest wanted) {
        if (wanted.purpose == core::Purpose::Ahead) return false;
        wanted.purpose = core::Purpose::Wait;
        const ChunkId busy = residency_.next_victim(wanted, core::Residency::InFlight::Accept);
        const bool waits = busy != core::kNoChunk && places_[busy].idle_at > pace_.now;
        const double until = waits ? places_[busy].idle_at : dead_reached_at();
        if (until == std::numeric_limits<double>::infinity()) return false;
        pace_.now = until;
        return true;
    }

    bool needs_no_copy(ChunkId chunk) const { return places_[chunk].clean == soilings_; }

    // When it would be in host memory, if it went now. What goes next is copied while the last came in.
    double copied_out_at(ChunkId chunk) const {
        const Place& place = places_[chunk];
        const double idle_at = std::max(place.idle_at, place.ready_at);
        const double mapped_at = pace_.now + with_.remap_seconds;
        if (needs_no_copy(chunk)) return std::max(idle_at, mapped_at);
        return std::max(mapped_at,
                        std::max({out_free_, idle_at, std::min(pace_.now, looked_ahead_at_)}) +
                            static_cast<double>(residency_.chunk(chunk).bytes) / with_.out_bytes_per_s);
    }

    double put_out(ChunkId chunk) {
        const bool copies = !needs_no_copy(chunk);
        const double gone_at = copied_out_at(chunk);
        residency_.begin_out(chunk);
        residency_.begin_remap(chunk);
        residency_.out(chunk);
        ++result_.evictions;
        pace_.now += with_.remap_seconds;
        places_[chunk].clean = 0;
        if (!copies) return gone_at;
        out_free_ = gone_at;
        result_.bytes_out += residency_.chunk(chunk).bytes;
        return gone_at;
    }

    void fill(ChunkId chunk, bool overwritten, double room_at) {
        const bool copies = residency_.chunk(chunk).state == core::State::OnHost &&
                            !(places_[chunk].fresh && (overwritten || with_.clears));
        const std::uint64_t bytes = residency_.chunk(chunk).bytes;
        residency_.begin_in(chunk);
        pace_.now += with_.remap_seconds;
        if (!copies) {
            residency_.mapped_empty(chunk);
            places_[chunk].ready_at = room_at;
            return;
        }
        residency_.begin_fill(chunk);
        residency_.filled(chunk);
        in_free_ =
            std::max({in_free_, room_at, pace_.now}) + static_cast<double>(bytes) / with_.in_bytes_per_s;
        places_[chunk].ready_at = in_free_;
        if (with_.retains) places_[chunk].clean = soilings_;
        fills_[result_.fills % fills_.size()] = in_free_;
        result_.bytes_in += bytes;
        ++result_.fills;
    }

    const ReplayScript& script_;
    const ReplayWith& with_;
    Optimal* optimal_ = nullptr;
    std::unique_ptr<core::Ranking> ranking_;
    core::Residency residency_;
    core::Arena arena_;
    std::vector<ChunkId> ids_;                                // by chunk of the script, while it is there
    std::vector<std::optional<core::AllocationId>> buffers_;  // by buffer of the script
    std::vector<Dead> dead_;                                  // in the order in which they were freed
    std::vector<Place> places_;                               // by ChunkId
    std::vector<std::uint32_t> first_use_;
    std::uint64_t budget_bytes_ = 0;
    std::uint64_t soilings_ = 1;  // works that may have written anything, and one
    Pace pace_;
    Pace fitting_;                   // if nothing had to move
    std::array<double, 2> fills_{};  // the last so many: when they are there
    double in_free_ = 0;
    double out_free_ = 0;
    double looked_ahead_at_ = 0;  // what goes next was chosen
    Replayed result_;
};

}  // namespace

Replayed replay(const ReplayScript& script, const ReplayWith& with) {
    return Replay(script, with).run();
}

}  // namespace lms::tool

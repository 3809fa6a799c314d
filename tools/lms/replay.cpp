#include "tools/lms/replay.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "policy/host.h"
#include "tools/lms/foreseen.h"
#include "tools/lms/modelled_moves.h"
#include "tools/lms/pace.h"
#include "tools/lms/progress.h"

namespace lms::tool {
namespace {

using engine::AllocationId;
using engine::ChunkId;
using engine::ChunkRequest;
using Step = ReplayScript::Step;
using Touch = ReplayScript::Touch;

// Works of a stream run one after the other, for as long as they took; copies run beside them.
class Replay {
  public:
    Replay(const ReplayScript& script, const ReplayWith& with)
        : script_(script),
          with_(with),
          ranking_(make_ranking(with)),
          pace_(script.streams, script.chunks),
          fitting_(script.streams, script.chunks),
          moves_(options(script, with), *ranking_, script.streams, script.maps_host,
                 {with.in_bytes_per_s, with.out_bytes_per_s, with.remap_seconds}, with.policy == kFewestBytes,
                 pace_.now),
          chunks_(script.chunks, kGone),
          buffers_(script.buffers.size()) {}

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
            if (step.kind == Step::Kind::Budget) moves_.change_budget(step.budget_bytes);
            note_peaks();
            if (result_.reached.size() < with_.marks.size() && with_.marks[result_.reached.size()] < done)
                note_reached();
        }
        static_cast<Moved&>(result_) = moves_.moved();
        result_.seconds = pace_.end();
        result_.fitting_seconds = fitting_.end();
        return result_;
    }

  private:
    static constexpr std::uint64_t kSpan = std::uint64_t{1} << 46;
    static constexpr ChunkRequest kGone{engine::kNoChunk, 0};

    static engine::EngineOptions options(const ReplayScript& script, const ReplayWith& with) {
        return {.begin = script.granularity,
                .bytes = kSpan,
                .granularity = script.granularity,
                .sees_all_writes = with.retains,
                .knows_undefined = with.clears,
                .host_limit_bytes = kSpan};
    }

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
        const engine::BlockPool& host = moves_.engine().pool(engine::Place::Host);
        result_.peak_bytes = std::max(result_.peak_bytes, moves_.residency().allocated_bytes());
        result_.peak_host_bytes = std::max(result_.peak_host_bytes, host.held_bytes() - host.free_bytes());
    }

    void note_reached() {
        result_.reached.push_back(
            {pace_.end(), fitting_.end(), moves_.moved().bytes_in, moves_.moved().bytes_out});
    }

    void allocate(std::uint32_t number) {
        const ReplayScript::Buffer& buffer = script_.buffers[number];
        if (const auto id = moves_.allocate(buffer.asked_bytes, buffer.chunk_bytes)) name(number, *id);
    }

    // Its chunks are that buffer's of the script from here on.
    void name(std::uint32_t number, AllocationId id) {
        numbers_.resize(std::max<std::size_t>(numbers_.size(), id + 1));
        numbers_[id] = number;
        buffers_[number] = id;
        std::uint32_t of_script = script_.buffers[number].first_chunk;
        for (const ChunkId chunk : moves_.residency().allocation(id).chunks) {
            chunks_[of_script] = {chunk, moves_.residency().chunk(chunk).serial};
            if (foreseen_) foreseen_->will_be_used(chunk, first_use_[of_script]);
            ++of_script;
        }
    }
    void forget(std::uint32_t number) {
        const ReplayScript::Buffer& buffer = script_.buffers[number];
        std::fill_n(chunks_.begin() + buffer.first_chunk, buffer.chunk_bytes.size(), kGone);
        buffers_[number].reset();
    }

    // A damaged trace may free it again. What is dead goes when its stream is there.
    bool is_live(std::uint32_t number) const {
        return buffers_[number] && is_there(script_.buffers[number].first_chunk);
    }
    bool is_there(std::uint32_t chunk) const {
        return chunks_[chunk].chunk != engine::kNoChunk && !gone(chunks_[chunk], moves_.residency());
    }

    void free(std::uint32_t number) {
        if (!is_live(number)) return;
        moves_.release(*buffers_[number]);
        forget(number);
    }

    void stream_free(const Step& step) {
        if (!is_live(step.buffer)) return;
        moves_.engine().kill(*buffers_[step.buffer]);
        free_behind(step.stream, *buffers_[step.buffer]);
    }
    void free_behind(std::uint32_t stream, AllocationId id) {
        const engine::Use reached = moves_.fences().add(stream, std::max(pace_.now, pace_.free[stream]));
        moves_.engine().pending_frees.add(
            {id, reached, key_of(stream), moves_.residency().allocation(id).bytes});
        moves_.look();
    }

    // It has the chunks of the newest dead buffer of its stream and size as they are, if there is one still.
    void revive(const Step& step) {
        const ReplayScript::Buffer& buffer = script_.buffers[step.buffer];
        std::uint64_t bytes = 0;
        for (const std::uint64_t chunk : buffer.chunk_bytes) bytes += chunk;
        const auto id = moves_.engine().pending_frees.take(key_of(step.stream), bytes);
        if (!id) return allocate(step.buffer);
        if (script_.buffers[numbers_[*id]].chunk_bytes != buffer.chunk_bytes) {
            // It was cut with another budget.
            free_behind(step.stream, *id);
            return allocate(step.buffer);
        }
        forget(numbers_[*id]);
        moves_.engine().revive(*id, buffer.asked_bytes);
        name(step.buffer, *id);
    }

    static engine::StreamKey key_of(std::uint32_t stream) { return stream + 1; }

    void work(const Step& step) {
        std::vector<ChunkRequest> needs;
        for (const Touch& touch : script_.touched_by(step)) {
            if (!is_there(touch.chunk)) continue;
            ChunkRequest need = chunks_[touch.chunk];
            need.overwritten = touch.overwritten;
            need.written = !touch.only_read;
            need.may_stay = touch.may_stay;
            needs.push_back(need);
        }
        tell(step, needs);
        engine::Engine& engine = moves_.engine();
        engine::ChunkPins hold;
        hold.unseen = step.writes_unseen;
        result_.in_place += !moves_.bring_in(needs, hold);
        const std::uint64_t submission = engine.begin_submission(false, hold.unseen);
        engine.announce(needs, hold);
        const double ready = moves_.fences().end_of(hold.fill);
        if (ready > 0) engine.note_wait(moves_.fences().oldest(script_.streams));
        const bool deep = is_deep(step.stream);
        if (deep) pace_.now = std::max(pace_.now, ready);
        const std::span<const Touch> touched = script_.touched_by(step);
        const double end =
            pace_.submit(step, touched, ready, moves_.link_of(step.copies), over_links(hold, needs));
        fitting_.submit(step, touched, 0);
        fitting_.now = fitting_.next(step);
        std::optional<engine::Use> over;
        if (!hold.pinned.empty() || !hold.in_place.empty() || hold.unseen)
            over = moves_.fences().add(step.stream, end, deep);
        engine.submitted(hold, over);
        engine.end_submission(submission);
        engine.let_go(hold);
        for (const Touch& touch : touched) {
            if (foreseen_ && is_there(touch.chunk))
                foreseen_->will_be_used(chunks_[touch.chunk].chunk, touch.next_work);
        }
        const double from = pace_.waits_from(step), until = pace_.waits_until(step), next = pace_.next(step);
        if (!hold.pinned.empty()) moves_.move_ahead();
        if (step.waits) move_ahead(from, until);
        pace_.now = std::max(pace_.now, next);
        if (moves_.residency().allocated_bytes() > moves_.engine().budget_bytes())
            pace_.now += with_.launch_seconds;
    }

    // Of a chunk, what the program asked for: the rest is never used.
    std::uint64_t asked_of(const engine::Chunk& chunk) const {
        const engine::Allocation& buffer = moves_.residency().allocation(chunk.allocation);
        const std::uint64_t before = chunk.address - buffer.address;
        return std::min(chunk.bytes, buffer.asked_bytes - std::min(buffer.asked_bytes, before));
    }

    // Seconds for what found no room: it is read and written over the links, once and as a whole.
    double over_links(const engine::ChunkPins& hold, std::span<const ChunkRequest> needs) const {
        double read = 0, written = 0;
        for (const ChunkId chunk : hold.in_place) {
            const auto need = std::ranges::find(needs, chunk, &ChunkRequest::chunk);
            if (need == needs.end() || need->may_stay) continue;
            const auto bytes = static_cast<double>(asked_of(moves_.residency().chunk(chunk)));
            if (!need->overwritten) read += bytes;
            if (need->written) written += bytes;
        }
        return std::max(read / with_.in_bytes_per_s, written / with_.out_bytes_per_s);
    }

    bool is_deep(std::uint32_t stream) {
        if (!moves_.fences().is_deep(stream)) return false;
        moves_.look();
        return moves_.fences().is_deep(stream);
    }

    void tell(const Step& step, std::span<const ChunkRequest> needs) {
        std::vector<ChunkId> chunks;
        std::vector<std::uint8_t> access;
        for (const ChunkRequest& need : needs) {
            chunks.push_back(need.chunk);
            access.push_back(!need.written      ? engine::kAccessRead
                             : need.overwritten ? engine::kAccessWritten | engine::kAccessWhole
                                                : engine::kAccessUnknown);
        }
        const engine::WorkFacts facts{step.stream, step.code, access};
        moves_.engine().work(chunks, &facts);
    }

    // What is foretold moves while the program waits, as it does when work has been submitted.
    void move_ahead(double from, double until) {
        pace_.now = std::max(pace_.now, from);
        while (moves_.move_ahead()) {
            const double then = moves_.fences().next_end();
            if (then >= std::min(until, *std::ranges::max_element(pace_.free))) return;
            pace_.now = then;
        }
    }

    const ReplayScript& script_;
    const ReplayWith& with_;
    Foreseen* foreseen_ = nullptr;
    std::unique_ptr<engine::Ranking> ranking_;
    Pace pace_;
    Pace fitting_;  // if nothing had to move
    ModelledMoves moves_;
    std::vector<ChunkRequest> chunks_;                  // by chunk of the script, the engine's
    std::vector<std::optional<AllocationId>> buffers_;  // by buffer of the script
    std::vector<std::uint32_t> numbers_;                // the buffer of the script, by AllocationId
    std::vector<std::uint32_t> first_use_;
    Replayed result_;
};

}  // namespace

Replayed replay(const ReplayScript& script, const ReplayWith& with) {
    return Replay(script, with).run();
}

}  // namespace lms::tool

#include "shim/session/stream_turns.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/device/driver_table.h"
#include "shim/program/fast_path.h"
#include "shim/program/per_thread_streams.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::session {

namespace {

using util::Clock;

// Of all streams with one hash. A thread first says what it is about to do and then looks what others do, so
// of two at least one sees the other.
struct Turn {
    std::atomic<std::uint32_t> submitting{0};
    std::atomic<const void*> in_pieces{nullptr};  // the thread that submits in pieces
    std::atomic<bool> is_blocking{true};          // the stream of that one
    std::atomic<std::uint64_t> pieces{0};         // ever submitted
};

constexpr std::size_t kLegacy = 0;
constinit std::array<Turn, 64> turns{};
constinit std::atomic<std::uint32_t> all_in_pieces{0};  // threads

const void* this_thread() {
    static constinit thread_local char self = 0;
    return &self;
}

std::size_t place_of(CUstream stream) {
    if (!stream || stream == CU_STREAM_LEGACY) return kLegacy;
    auto which = reinterpret_cast<std::uintptr_t>(stream);
    if (stream == CU_STREAM_PER_THREAD) which = reinterpret_cast<std::uintptr_t>(this_thread());
    const std::uint64_t hash = which * 0x9E3779B97F4A7C15;
    return 1 + (hash >> 32) % (turns.size() - 1);
}

bool is_anothers(const Turn& turn) {
    const void* const thread = turn.in_pieces.load();
    return thread && thread != this_thread();
}

bool is_anothers_beside_legacy(const Turn& turn) {
    return is_anothers(turn) && turn.is_blocking.load();
}

// Whether another thread submits in pieces to `stream`, or to one that waits for it.
bool in_pieces(CUstream stream) {
    const std::size_t place = place_of(stream);
    if (place == kLegacy) return std::ranges::any_of(turns, is_anothers_beside_legacy);
    return is_anothers(turns[place]) || is_anothers(turns[kLegacy]);
}

// Those that wait for the legacy stream, and it for them.
bool is_blocking(CUstream stream) {
    unsigned flags = 0;
    return device::driver().cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS ||
           (flags & CU_STREAM_NON_BLOCKING) == 0;
}

// Ever submitted in `stream`, or where it waits for them.
std::uint64_t pieces_beside(CUstream stream) {
    const std::size_t place = place_of(stream);
    if (place != kLegacy) return turns[place].pieces.load() + turns[kLegacy].pieces.load();
    std::uint64_t all = 0;
    for (const Turn& turn : turns) all += turn.pieces.load();
    return all;
}

// For another thread, as long as it gets further there: it may wait for this one.
class Patience {
  public:
    Patience(CUstream stream, Clock::duration most) : stream_(stream), most_(most) {}
    // False: in vain.
    bool wait() {
        util::pause(bounds::kPiece);
        if (const std::uint64_t now = pieces_beside(stream_); now != seen_) {
            seen_ = now;
            since_ = Clock::now();
        }
        return Clock::now() - since_ < most_;
    }

  private:
    CUstream stream_;
    Clock::duration most_;
    std::uint64_t seen_ = pieces_beside(stream_);
    Clock::time_point since_ = Clock::now();
};

}  // namespace

Submitting::Submitting(CUstream stream) : stream_(stream) {
    program::note_use_beside_moves(stream);
    std::atomic<std::uint32_t>& here = turns[place_of(stream)].submitting;
    here.fetch_add(1);
    if (all_in_pieces.load() == 0) [[likely]]
        return;
    Patience patience(stream, bounds::kPieces);
    for (bool goes_on = true; goes_on && in_pieces(stream);) {
        here.fetch_sub(1);
        goes_on = patience.wait();
        here.fetch_add(1);
    }
}

Submitting::~Submitting() {
    turns[place_of(stream_)].submitting.fetch_sub(1);
}

SubmittingPieces::SubmittingPieces(CUstream stream) : stream_(stream), granted_(false) {
    Patience patience(stream, bounds::kOtherThread);
    do granted_ = take();
    while (!granted_ && patience.wait());
}

bool SubmittingPieces::take() {
    const std::size_t place = place_of(stream_);
    const bool blocking = place == kLegacy || is_blocking(stream_);
    const auto is_busy = [&] {
        const auto submits = [](const Turn& turn) { return turn.submitting.load() > 0; };
        return place == kLegacy ? std::ranges::any_of(turns, submits)
                                : submits(turns[place]) || (blocking && submits(turns[kLegacy]));
    };
    const void* nobody = nullptr;
    Turn& own = turns[place];
    all_in_pieces.fetch_add(1);
    if (own.in_pieces.compare_exchange_strong(nobody, this_thread())) {
        own.is_blocking.store(blocking);
        // Meanwhile nobody else begins.
        Patience patience(stream_, bounds::kOtherThread);
        for (bool goes_on = true; goes_on && !in_pieces(stream_); goes_on = patience.wait()) {
            // Nor is one left that went by the short cut before something moved.
            if (!is_busy() && !program::fast_path_gate.busy()) return true;
        }
        own.in_pieces.store(nullptr);
    }
    all_in_pieces.fetch_sub(1);
    return false;
}

SubmittingPieces::~SubmittingPieces() {
    if (!granted_) return;
    turns[place_of(stream_)].in_pieces.store(nullptr);
    all_in_pieces.fetch_sub(1);
}

void SubmittingPieces::submitted() {
    turns[place_of(stream_)].pieces.fetch_add(1);
}

}  // namespace lms::session

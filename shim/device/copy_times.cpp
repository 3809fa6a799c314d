#include "shim/device/copy_times.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "shim/device/driver_table.h"

namespace lms::device {
namespace {

// From one event to another is told as a float: beyond a second it is not exact to a microsecond.
constexpr std::uint64_t kFarNs = 1'000'000'000;
// What nobody asks for, copies that came to nothing, is not kept for ever.
constexpr std::size_t kMostDone = 4096;

std::uint64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
}

CUevent make_event() {
    CUevent event = nullptr;
    return driver().cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : nullptr;
}

}  // namespace

void CopyTimes::start(CUstream stream) {
    const CUevent event = make_event();
    if (!event) return;
    const bool known = driver().cuEventRecord(event, stream) == CUDA_SUCCESS &&
                       driver().cuEventSynchronize(event) == CUDA_SUCCESS;
    const std::uint64_t now = now_ns();
    if (!known) {
        driver().cuEventDestroy_v2(event);
        return;
    }
    const util::Lock lock(lock_);
    known_ = event;
    known_ns_ = now;
    ++starts_;
}

void CopyTimes::forget() {
    const util::Lock lock(lock_);
    for (auto& copies : pending_) copies.clear();
    free_.clear();
    done_.clear();
    known_ = nullptr;
    ++starts_;
}

CopyTimes::Pair CopyTimes::begin(CUstream stream) {
    Pair pair;
    pair.asked_ns = now_ns();
    {
        const util::Lock lock(lock_);
        if (!known_) return {};
        for (CUevent* event : {&pair.begin, &pair.end}) {
            if (free_.empty()) continue;
            *event = free_.back();
            free_.pop_back();
        }
    }
    if (!pair.begin) pair.begin = make_event();
    if (!pair.end) pair.end = make_event();
    if (pair.begin && pair.end && driver().cuEventRecord(pair.begin, stream) == CUDA_SUCCESS) return pair;
    const util::Lock lock(lock_);
    done_with(pair.begin);
    done_with(pair.end);
    return {};
}

void CopyTimes::end(Pair pair, CUstream stream, Direction direction, Address destination) {
    if (!pair.end) return;
    const bool recorded = driver().cuEventRecord(pair.end, stream) == CUDA_SUCCESS;
    const util::Lock lock(lock_);
    if (recorded) {
        pending_[static_cast<int>(direction)].push_back({pair, destination, pair.asked_ns});
    } else {
        done_with(pair.begin);
        done_with(pair.end);
    }
}

void CopyTimes::done_with(CUevent event) {
    if (event) free_.push_back(event);
}

void CopyTimes::collect() {
    util::Lock lock(lock_);
    if (collecting_ || !known_) return;
    collecting_ = true;
    const std::uint64_t start = starts_;
    for (auto& copies : pending_) {
        while (start == starts_ && !copies.empty()) {
            const Copy copy = copies.front();
            const CUevent known = known_;
            Told told{};
            const bool over = util::unlocked(lock, [&] { return ask(copy.pair, known, told); });
            if (!over || start != starts_) break;
            copies.pop_front();
            note(copy, told);
        }
    }
    collecting_ = false;
}

// Whether the copy is over; then also when, in milliseconds since `known`.
bool CopyTimes::ask(const Pair& pair, CUevent known, Told& told) {
    if (driver().cuEventQuery(pair.end) == CUDA_ERROR_NOT_READY) return false;
    told.known = driver().cuEventElapsedTime(&told.begin_ms, known, pair.begin) == CUDA_SUCCESS &&
                 driver().cuEventElapsedTime(&told.end_ms, known, pair.end) == CUDA_SUCCESS;
    told.now_ns = now_ns();
    return true;
}

void CopyTimes::note(const Copy& copy, const Told& told) {
    const auto since_known = [known = known_ns_](float ms) {
        return static_cast<std::int64_t>(known) + static_cast<std::int64_t>(double{ms} * 1e6);
    };
    if (told.known) {
        // Clocks drift apart: a copy ends before that is seen, and mostly begins after it was asked for, or
        // when the one before it ends.
        const std::int64_t late = since_known(told.end_ms) - static_cast<std::int64_t>(told.now_ns);
        if (late > 0) known_ns_ -= static_cast<std::uint64_t>(late);
        const std::int64_t begin = since_known(told.begin_ms);
        const std::int64_t end = since_known(told.end_ms);
        const std::int64_t early = static_cast<std::int64_t>(copy.asked_ns) - begin;
        const std::int64_t room = static_cast<std::int64_t>(told.now_ns) - end;
        const std::int64_t shift = std::clamp<std::int64_t>(early, 0, room);
        known_ns_ += static_cast<std::uint64_t>(shift);
        if (done_.size() >= kMostDone) done_.clear();
        done_[copy.destination] = {static_cast<std::uint64_t>(begin + shift),
                                   static_cast<std::uint64_t>(end + shift)};
        if (end + shift - static_cast<std::int64_t>(known_ns_) > static_cast<std::int64_t>(kFarNs)) {
            done_with(std::exchange(known_, copy.pair.end));
            known_ns_ = static_cast<std::uint64_t>(end + shift);
            done_with(copy.pair.begin);
            return;
        }
    }
    done_with(copy.pair.begin);
    done_with(copy.pair.end);
}

std::optional<CopyTime> CopyTimes::take(Address destination) {
    const util::Lock lock(lock_);
    const auto found = done_.find(destination);
    if (found == done_.end()) return {};
    const CopyTime time = found->second;
    done_.erase(found);
    return time;
}

}  // namespace lms::device

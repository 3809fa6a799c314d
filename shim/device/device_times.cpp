#include "shim/device/device_times.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "shim/device/driver_table.h"
#include "shim/util/clock.h"

namespace lms::device {
namespace {

// From one event to another is told as a float: beyond a second it is not exact to a microsecond.
constexpr std::uint64_t kFarNs = 1'000'000'000;
// What nobody asks for, copies that came to nothing, is not kept for ever.
constexpr std::size_t kMostDone = 4096;

using util::now_ns;

CUevent make_event() {
    CUevent event = nullptr;
    return driver().cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : nullptr;
}

}  // namespace

void DeviceTimes::start(CUstream stream) {
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

void DeviceTimes::forget() {
    const util::Lock lock(lock_);
    for (auto& lane : pending_) lane.clear();
    begun_.clear();
    free_.clear();
    for (Done& done : done_) done.clear();
    known_ = nullptr;
    ++starts_;
}

DeviceTimes::Pair DeviceTimes::begin(CUstream stream) {
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

void DeviceTimes::end(Pair pair, CUstream stream, Direction direction, Address destination) {
    if (pair.end) enqueue(pair, stream, direction == Direction::In ? In : Out, destination);
}

void DeviceTimes::enqueue(Pair pair, CUstream stream, Lane lane, std::uint64_t key) {
    const bool recorded = driver().cuEventRecord(pair.end, stream) == CUDA_SUCCESS;
    const util::Lock lock(lock_);
    if (recorded) {
        pending_[lane].push_back({pair, key});
    } else {
        done_with(pair.begin);
        done_with(pair.end);
    }
}

std::uint64_t DeviceTimes::begin_work(CUstream stream) {
    {
        const util::Lock lock(lock_);
        if (pending_[OfWork].size() + begun_.size() >= kMostWork) return 0;
    }
    const Pair pair = begin(stream);
    if (!pair.end) return 0;
    const util::Lock lock(lock_);
    begun_[++pieces_] = pair;
    return pieces_;
}

void DeviceTimes::end_work(std::uint64_t piece, CUstream stream) {
    Pair pair;
    {
        const util::Lock lock(lock_);
        const auto found = begun_.find(piece);
        if (found == begun_.end()) return;  // its context is gone
        pair = found->second;
        begun_.erase(found);
    }
    enqueue(pair, stream, OfWork, piece);
}

void DeviceTimes::drop_work(std::uint64_t piece) {
    const util::Lock lock(lock_);
    const auto found = begun_.find(piece);
    if (found == begun_.end()) return;
    done_with(found->second.begin);
    done_with(found->second.end);
    begun_.erase(found);
}

void DeviceTimes::done_with(CUevent event) {
    if (event) free_.push_back(event);
}

void DeviceTimes::collect() {
    util::Lock lock(lock_);
    if (collecting_ || !known_) return;
    collecting_ = true;
    const std::uint64_t start = starts_;
    for (const Lane lane : {In, Out, OfWork}) {
        std::deque<Timed>& all = pending_[lane];
        while (start == starts_ && !all.empty()) {
            const Timed timed = all.front();
            const CUevent known = known_;
            Told told{};
            const bool over = util::unlocked(lock, [&] { return ask(timed.pair, known, told); });
            if (!over || start != starts_) break;
            all.pop_front();
            note(timed, lane, told);
        }
    }
    collecting_ = false;
}

// Whether it is over; then also when, in milliseconds since `known`.
bool DeviceTimes::ask(const Pair& pair, CUevent known, Told& told) {
    if (driver().cuEventQuery(pair.end) == CUDA_ERROR_NOT_READY) return false;
    told.known = driver().cuEventElapsedTime(&told.begin_ms, known, pair.begin) == CUDA_SUCCESS &&
                 driver().cuEventElapsedTime(&told.end_ms, known, pair.end) == CUDA_SUCCESS;
    told.now_ns = now_ns();
    return true;
}

void DeviceTimes::note(const Timed& timed, Lane lane, const Told& told) {
    const auto since_known = [known = known_ns_](float ms) {
        return static_cast<std::int64_t>(known) + static_cast<std::int64_t>(double{ms} * 1e6);
    };
    if (told.known) {
        // Clocks drift apart: what is timed ends before that is seen, and mostly begins after it was asked
        // for, or when what is before it ends.
        const std::int64_t late = since_known(told.end_ms) - static_cast<std::int64_t>(told.now_ns);
        if (late > 0) known_ns_ -= static_cast<std::uint64_t>(late);
        const std::int64_t begin = since_known(told.begin_ms);
        const std::int64_t end = since_known(told.end_ms);
        const std::int64_t early = static_cast<std::int64_t>(timed.pair.asked_ns) - begin;
        const std::int64_t room = static_cast<std::int64_t>(told.now_ns) - end;
        const std::int64_t shift = std::clamp<std::int64_t>(early, 0, room);
        known_ns_ += static_cast<std::uint64_t>(shift);
        Done& done = done_in(lane);
        if (done.size() >= kMostDone) done.clear();
        done[timed.key] = {static_cast<std::uint64_t>(begin + shift),
                           static_cast<std::uint64_t>(end + shift)};
        if (end + shift - static_cast<std::int64_t>(known_ns_) > static_cast<std::int64_t>(kFarNs)) {
            done_with(std::exchange(known_, timed.pair.end));
            known_ns_ = static_cast<std::uint64_t>(end + shift);
            done_with(timed.pair.begin);
            return;
        }
    }
    done_with(timed.pair.begin);
    done_with(timed.pair.end);
}

std::optional<DeviceTime> DeviceTimes::take(Lane lane, std::uint64_t key) {
    const util::Lock lock(lock_);
    Done& done = done_in(lane);
    const auto found = done.find(key);
    if (found == done.end()) return {};
    const DeviceTime time = found->second;
    done.erase(found);
    return time;
}

}  // namespace lms::device

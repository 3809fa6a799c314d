#include "shim/program/capture.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "shim/util/mutex.h"

namespace lms::program {

namespace {

std::atomic<std::uint64_t> since_none{0};

Handles<CUstream, Captured>& captured_streams() {
    return only<Handles<CUstream, Captured>>();
}

// As one handle.
struct AllBeginnings : Beginnings {
    static constexpr int kHandle = 0;

    AllBeginnings() {
        const util::Lock lock(mutex);
        enter(kHandle, {});
    }
};

AllBeginnings& beginnings() {
    return only<AllBeginnings>();
}

// Counted first, so that it ends if its stream does.
Beginnings& beginnings_with(CUstream stream) {
    Beginnings& all = beginnings();
    const util::Lock lock(captured_streams().mutex);
    ++captured_streams().find_or_enter(stream).begun;
    return all;
}

}  // namespace

void capture_nears() {
    if (captures++ == 0) ++since_none;
}

void capture_may_reach(CUstream stream, bool fenced) {
    const util::Lock lock(captured_streams().mutex);
    captured_streams().find_or_enter(stream).fenced_at = fenced ? since_none.load() : 0;
}

void capture_ended(CUstream stream) {
    const util::Lock lock(captured_streams().mutex);
    Captured* const captured = captured_streams().find(stream);
    if (!captured || captured->begun == 0) return;
    --captured->begun;
    --captures;
}

CaptureEnd::CaptureEnd(CUstream stream) : stream_(stream) {
    const util::Lock lock(captured_streams().mutex);
    captured_ = captured_streams().take(stream).value_or(Captured{});
}

// Until then they count: streams that a capture has spread to are captured while its first one is there.
CaptureEnd::~CaptureEnd() {
    captures -= captured_.begun;
}

void CaptureEnd::refused() {
    const util::Lock lock(captured_streams().mutex);
    Captured& stays = captured_streams().find_or_enter(stream_);
    stays.begun += std::exchange(captured_.begun, 0);
    stays.fenced_at = std::max(stays.fenced_at, captured_.fenced_at);
}

bool fenced_before_capture(CUstream stream) {
    const util::Lock lock(captured_streams().mutex);
    const Captured* const captured = captured_streams().find(stream);
    // A capture that nobody has seen begin is not the one that it was fenced for.
    return captured && capturing_anywhere() && captured->fenced_at == since_none.load();
}

std::uint64_t captures_since_none() {
    return since_none.load();
}

CapturesHeldOff::CapturesHeldOff() : Use(beginnings(), AllBeginnings::kHandle) {}

CaptureBegin::CaptureBegin(CUstream stream) : Retire(beginnings_with(stream), AllBeginnings::kHandle) {}

}  // namespace lms::program

#include "shim/app/capture.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"
#include "shim/util/mutex.h"

#include <atomic>
#include <map>
#include <set>
#include <utility>

namespace lms::engine {

namespace {

std::atomic<int> captures{0};
std::atomic<int> beginning{0};  // of them, those that the driver has not been asked to begin
std::atomic<int> held_off{0};   // CapturesHeldOff
std::atomic<std::uint64_t> since_none{0};

// Never destroyed: exit handlers end streams too.
struct CaptureRegistry {
    util::Mutex mutex{util::LockOrder::Table};
    // Where captures were begun; more than one only for the per-thread stream's handle.
    std::map<CUstream, int> begun LMS_GUARDED_BY(mutex);
    // Fenced before a capture last began on them or may have reached them.
    std::set<CUstream> fenced LMS_GUARDED_BY(mutex);
};

CaptureRegistry& capture_registry() {
    static CaptureRegistry& instance = *new CaptureRegistry;
    return instance;
}

}  // namespace

void capture_nears() {
    if (captures++ == 0) ++since_none;
}

void capture_begins(CUstream stream) {
    {
        const util::Lock lock(capture_registry().mutex);
        ++capture_registry().begun[stream];
    }
    // Said before it is asked, as CapturesHeldOff does, so that one of two sees the other.
    ++beginning;
    const auto deadline = util::Clock::now() + bounds::kOtherThread;
    while (held_off.load() > 0 && util::Clock::now() < deadline) util::pause(bounds::kCapture);
}

void capture_began() {
    --beginning;
}

void capture_may_reach(CUstream stream, bool fenced) {
    const util::Lock lock(capture_registry().mutex);
    if (fenced) {
        capture_registry().fenced.insert(stream);
    } else {
        capture_registry().fenced.erase(stream);
    }
}

void capture_ended(CUstream stream) {
    const util::Lock lock(capture_registry().mutex);
    const auto it = capture_registry().begun.find(stream);
    if (it == capture_registry().begun.end()) return;
    if (--it->second == 0) capture_registry().begun.erase(it);
    --captures;
}

CaptureEnd::CaptureEnd(CUstream stream) : stream_(stream) {
    const util::Lock lock(capture_registry().mutex);
    fenced_ = capture_registry().fenced.erase(stream) > 0;
    const auto begun = capture_registry().begun.extract(stream);
    if (begun) begun_ = begun.mapped();
}

// Until then they count: streams that a capture has spread to are captured while its first one is there.
CaptureEnd::~CaptureEnd() {
    captures -= begun_;
}

void CaptureEnd::refused() {
    const util::Lock lock(capture_registry().mutex);
    if (fenced_) capture_registry().fenced.insert(stream_);
    if (begun_ > 0) capture_registry().begun[stream_] += std::exchange(begun_, 0);
}

bool capturing_anywhere() {
    return captures.load(std::memory_order_relaxed) > 0;
}

bool fenced_before_capture(CUstream stream) {
    const util::Lock lock(capture_registry().mutex);
    return capture_registry().fenced.contains(stream);
}

std::uint64_t captures_since_none() {
    return since_none.load();
}

CapturesHeldOff::CapturesHeldOff() {
    ++held_off;
    held_off_ = beginning.load() == 0;
    if (!held_off_) --held_off;
}

CapturesHeldOff::~CapturesHeldOff() {
    if (held_off_) --held_off;
}

}  // namespace lms::engine

// The waits that make a program free of races: no more of them than its clocks ask for.
#include "tests/random/machine.h"

namespace rnd {

unsigned Machine::slot_of(const Hand& hand, std::uint32_t stream) const {
    stream %= kPerThread + 1;
    return stream == kPerThread ? kPerThread + hand.thread : stream;
}

CUevent Machine::event(Hand& hand, unsigned slot) {
    const std::vector<CUevent>& events = hand.events[device_of(slot)];
    return events[hand.next_event++ % events.size()];
}

// The handle, which for default streams means something in their context only.
CUstream Machine::stream_of(unsigned slot) {
    if (slot >= kLegacy) enter(0);
    return streams_[slot].handle;
}

// Whether the thread may give the stream's handle to the driver now, and not into a capture.
bool Machine::usable(const Hand& hand, unsigned slot) {
    if (slot == kLegacy && legacy_forbidden()) return false;
    if (slot >= kPerThread && slot != kPerThread + hand.thread) return false;
    if (together_ && stream_owner_[slot] >= 0 && stream_owner_[slot] != static_cast<int>(hand.thread))
        return false;
    return streams_[slot].alive && !streams_[slot].capture;
}

// Whether a capture forbids the thread what may wait for the device.
bool Machine::forbidden(const Hand& hand) {
    const std::lock_guard lock(capturing_);
    for (const auto& capture : captures_) {
        if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL || capture->thread == hand.thread) return true;
    }
    return false;
}

// Whether contexts may be waited for: that ends what is captured on their GPUs, by any thread. While threads
// run at once, whether it may be does not hang on how they interleave.
bool Machine::may_wait_for_all() {
    if (together_) return !captures_together_;
    const std::lock_guard lock(capturing_);
    return captures_.empty();
}

// Whether the legacy stream cannot be used because a stream that it waits for is capturing.
bool Machine::legacy_forbidden() {
    const std::lock_guard lock(capturing_);
    for (const auto& capture : captures_) {
        for (const unsigned member : capture->members) {
            if (streams_[member].blocking) return true;
        }
    }
    return false;
}

// Before work that uses `uses` is given to a stream: the waits that it needs. False if it cannot be.
bool Machine::prepare(Hand& hand, const Op& op, unsigned slot, const UseList& uses) {
    Stream& stream = streams_[slot];
    if (!stream.alive || !may_use(hand, uses)) return false;
    if (stream.capture) {
        return prepare_captured(hand, *stream.capture, slot, uses) && enter(device_of(slot));
    }
    if (!usable(hand, slot)) return false;
    const Clock implied = implied_order(hand, slot);
    const Clock& clock = hand.view->streams[slot];
    for (const Use& use : uses) {
        const Clock need = buffers_[use.buffer].uses.before(use.mode);
        for (unsigned in = 0; in < kLanes; ++in) {
            if (need.at[in] > std::max(clock.at[in], implied.at[in]) &&
                !wait_for(hand, op, in, need.at[in], slot))
                return false;
        }
    }
    return enter(device_of(slot));
}

// What the next operation of a stream comes behind without being told to. Work that was refused comes behind
// nothing, so this is known of the stream once something was submitted.
Clock Machine::implied_order(const Hand& hand, unsigned slot) {
    const View& view = *hand.view;
    Clock implied = view.host;
    if (slot == kLegacy) {
        for (unsigned other = 0; other < kSlots; ++other) {
            if (other != kLegacy && streams_[other].blocking && device_of(other) == 0 && usable(hand, other))
                implied.join(view.done[other]);
        }
    } else if (streams_[slot].blocking && device_of(slot) == 0) {
        implied.join(view.done[kLegacy]);
    }
    return implied;
}

bool Machine::prepare_captured(Hand& hand, Capture& capture, unsigned slot, const UseList& uses) {
    Clock& clock = capture.view.streams[slot];
    for (const Use& use : uses) {
        const Clock need = capture.uses[use.buffer].before(use.mode);
        for (unsigned in = 0; in < kLanes; ++in) {
            if (need.at[in] <= clock.at[in]) continue;
            const unsigned from = in / kThreads;
            if (from >= kPerThread && from != kPerThread + hand.thread) return false;
            if (!wait_by_event(hand, from, slot)) return false;
            clock.join(capture.view.streams[from]);
        }
    }
    return true;
}

void Machine::submitted(Hand& hand, unsigned slot, const UseList& uses) {
    const unsigned in = lane(slot, hand.thread);
    const std::uint32_t number = ++count_[in];
    View& view = *hand.view;
    view.streams[slot].join(implied_order(hand, slot));
    view.streams[slot].at[in] = number;
    view.done[slot] = view.streams[slot];
    for (const Use& use : uses) buffers_[use.buffer].uses.note(use.mode, in, number);
    if (slot == kPerThread + hand.thread) {
        ok(CU(cuEventRecord)(hand.last_own, stream_of(slot)), "cuEventRecord");
    }
}

bool Machine::wait_by_event(Hand& hand, unsigned from, unsigned slot) {
    const CUevent marker = event(hand, from);
    return ok(CU(cuEventRecord)(marker, stream_of(from)), "cuEventRecord") &&
           ok(CU(cuStreamWaitEvent)(stream_of(slot), marker, 0), "cuStreamWaitEvent");
}

// One stream writes a word, the other waits for it.
bool Machine::wait_by_value(Hand& hand, unsigned from, unsigned slot) {
    if (hand.next_flag == kFlags) return wait_by_event(hand, from, slot);
    const auto flag = reinterpret_cast<CUdeviceptr>(flags_ + 1 + hand.thread * kFlags + hand.next_flag++);
    return ok(CU(cuStreamWriteValue32_v2)(stream_of(from), flag, 1, 0), "cuStreamWriteValue32") &&
           ok(CU(cuStreamWaitValue32_v2)(stream_of(slot), flag, 1, CU_STREAM_WAIT_VALUE_GEQ),
              "cuStreamWaitValue32");
}

bool Machine::synchronize(Hand& hand, unsigned slot) {
    open_gates();
    if (!ok(CU(cuStreamSynchronize)(stream_of(slot)), "cuStreamSynchronize")) return false;
    hand.view->host.join(hand.view->streams[slot]);
    return true;
}

// Orders the next operation of `slot` behind the one in lane `in`.
bool Machine::wait_for(Hand& hand, const Op& op, unsigned in, std::uint32_t number, unsigned slot) {
    View& view = *hand.view;
    const unsigned from = in / kThreads;
    Clock& clock = view.streams[slot];
    if (usable(hand, from) && view.streams[from].at[in] >= number) {
        const unsigned way = hash(op, in) % 16;
        if (way == 0 && !forbidden(hand)) {
            if (!synchronize(hand, from)) return false;
        } else if (!(way == 1 ? wait_by_value(hand, from, slot) : wait_by_event(hand, from, slot))) {
            return false;
        }
        clock.join(view.streams[from]);
        return true;
    }
    if (from >= kPerThread && from != kPerThread + hand.thread && !streams_[from].capture) {
        clock.join(view.done[from]);
        return ok(CU(cuStreamWaitEvent)(stream_of(slot), hands_[from - kPerThread].last_own, 0),
                  "cuStreamWaitEvent");
    }
    for (const Grave& grave : view.graves) {
        if (grave.slot != from || grave.clock.at[in] < number) continue;
        clock.join(grave.clock);
        return ok(CU(cuStreamWaitEvent)(stream_of(slot), grave.event, 0), "cuStreamWaitEvent");
    }
    if (forbidden(hand) || !may_wait_for_all()) return false;
    open_gates();
    if (!synchronize_all() || !enter(device_of(slot))) return false;
    clock.at[in] = view.host.at[in] = number;
    return true;
}

// The same for the host.
bool Machine::host_waits(Hand& hand, const UseList& uses) {
    View& view = *hand.view;
    for (const Use& use : uses) {
        const Clock need = buffers_[use.buffer].uses.before(use.mode);
        if (view.host.covers(need)) continue;
        if (forbidden(hand)) return false;
        for (unsigned in = 0; in < kLanes; ++in) {
            if (need.at[in] <= view.host.at[in]) continue;
            const unsigned from = in / kThreads;
            if (usable(hand, from) && view.streams[from].at[in] >= need.at[in]) {
                if (!synchronize(hand, from)) return false;
            } else {
                if (!may_wait_for_all()) return false;
                open_gates();
                if (!synchronize_all()) return false;
                view.host.at[in] = need.at[in];
            }
        }
    }
    return true;
}

// Before a stream is lost sight of: an event stands for what it has been given.
bool Machine::bury(Hand& hand, unsigned slot) {
    CUevent marker = nullptr;
    if (!enter(device_of(slot)) || !ok(CU(cuEventCreate)(&marker, CU_EVENT_DISABLE_TIMING), "cuEventCreate"))
        return false;
    hand.view->graves.push_back({marker, slot, hand.view->streams[slot]});
    return ok(CU(cuEventRecord)(marker, stream_of(slot)), "cuEventRecord");
}

}  // namespace rnd

// Streams, host functions in them, and waiting.
#include <thread>

#include "tests/random/machine.h"

namespace rnd {

namespace {

struct Noted {
    std::shared_ptr<std::atomic<std::uint32_t>> seen;
    std::uint32_t number;
};

void noted(void* data) {
    const std::unique_ptr<Noted> note(static_cast<Noted*>(data));
    if (note->seen->exchange(note->number) >= note->number) order_broken() = true;
}

struct Gate {
    std::uint32_t* open;
    std::uint32_t number;
};

void wait_at(void* data) {
    const std::unique_ptr<Gate> gate(static_cast<Gate*>(data));
    while (std::atomic_ref(*gate->open).load() < gate->number) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
}

}  // namespace

std::atomic<bool>& order_broken() {
    static std::atomic<bool> broken{false};
    return broken;
}

void Machine::make_stream(Hand& hand, const Op& op) {
    const unsigned slot = op.a[0] % kOwnStreams;
    Stream& stream = streams_[slot];
    // What the one before it was given may have to be waited for, whatever that was.
    if (stream.alive || forbidden(hand) || (stream.life != 0 && !may_wait_for_all())) return;
    const bool blocking = op.a[1] % 3 == 0;
    const unsigned flags = blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    if (!enter(device_of(slot))) return;
    if (op.a[1] % 2
            ? !ok(CU(cuStreamCreate)(&stream.handle, flags), "cuStreamCreate")
            : !ok(CU(cuStreamCreateWithPriority)(&stream.handle, flags, 0), "cuStreamCreateWithPriority"))
        return;
    stream.blocking = blocking;
    stream.alive = true;
    stream.life = ++born_;
    hand.view->streams[slot] = hand.view->host;
    hand.view->done[slot] = {};
    // A clock has one number for all streams that were in this place: each begins behind the one before it.
    const unsigned in = lane(slot, 0);
    for (unsigned thread = 0; thread < kThreads; ++thread) {
        const std::uint32_t number = stream.last[thread];
        if (number > hand.view->streams[slot].at[in + thread]) wait_for(hand, op, in + thread, number, slot);
    }
}

void Machine::drop_stream(Hand& hand, const Op& op) {
    const unsigned slot = op.a[0] % kOwnStreams;
    if (!usable(hand, slot)) return;
    const unsigned how = op.a[1] % 3;
    if (how == 0 && !bury(hand, slot)) return;
    if (how == 1 && !forbidden(hand) && !synchronize(hand, slot)) return;
    ok(CU(cuStreamDestroy_v2)(stream_of(slot)), "cuStreamDestroy");
    streams_[slot] = {.life = streams_[slot].life};
    for (unsigned thread = 0; thread < kThreads; ++thread)
        streams_[slot].last[thread] = count_[lane(slot, thread)];
}

void Machine::note(Hand& hand, const Op& op) {
    const unsigned slot = slot_of(hand, op.a[0]);
    if (streams_[slot].capture || !prepare(hand, op, slot, {})) return;
    std::vector<Note>& notes = hand.notes;
    auto found = std::find_if(notes.begin(), notes.end(), [&](const Note& note) {
        return note.slot == slot && note.life == streams_[slot].life;
    });
    if (found == notes.end()) {
        notes.push_back({slot, streams_[slot].life, std::make_shared<std::atomic<std::uint32_t>>(0), 0});
        found = notes.end() - 1;
    }
    ++found->last;
    if (ok(CU(cuLaunchHostFunc)(stream_of(slot), noted, new Noted{found->seen, found->last}),
           "cuLaunchHostFunc"))
        submitted(hand, slot, {});
}

void Machine::gate(Hand& hand, const Op& op) {
    const unsigned slot = slot_of(hand, op.a[0]);
    if (streams_[slot].capture || !prepare(hand, op, slot, {})) return;
    const std::uint32_t number = ++gates_;
    const bool by_value = op.a[1] % 2;
    const bool done =
        by_value ? ok(CU(cuStreamWaitValue32_v2)(stream_of(slot), reinterpret_cast<CUdeviceptr>(flags_),
                                                 number, CU_STREAM_WAIT_VALUE_GEQ),
                      "cuStreamWaitValue32")
                 : ok(CU(cuLaunchHostFunc)(stream_of(slot), wait_at, new Gate{flags_, number}),
                      "cuLaunchHostFunc");
    if (done) submitted(hand, slot, {});
}

// Work that is submitted first and runs last: a set of a whole buffer stands behind a gate, which opens once
// a kernel that reads the buffer, submitted later to another stream, has run.
void Machine::behind(Hand& hand, const Op& op) {
    const unsigned slot = slot_of(hand, op.a[0]);
    const unsigned other = slot_of(hand, op.a[1]);
    const auto apart = [&](unsigned one) { return usable(hand, one) && !streams_[one].blocking; };
    Op reader{op.thread, Verb::mix, {op.a[1], op.a[2], op.a[3], op.a[3], op.a[4], op.a[5], op.a[6]}};
    Op set{op.thread, Verb::set, {op.a[0], op.a[3], 0, kLargest, 1, op.a[6], 0}};
    UseList reads, writes;
    // Another thread could make the reader wait for the set.
    if (slot == other || !apart(slot) || !apart(other) || !options_.behind || together_) return;
    if (device_of(slot) != device_of(other)) return;
    if (op.a[2] % kBuffers == op.a[3] % kBuffers || hand.next_flag == kFlags) return;
    if (!resolve(reader, reads) || !resolve(set, writes)) return;
    if (!reaches(slot, set, writes) || !reaches(slot, reader, reads)) return;
    if (!prepare(hand, set, slot, writes) || !prepare(hand, reader, other, reads)) return;
    std::uint32_t* const flag = flags_ + 1 + hand.thread * kFlags + hand.next_flag++;
    const auto address = reinterpret_cast<CUdeviceptr>(flag);
    const CUstream first = stream_of(slot);
    const CUstream second = stream_of(other);
    // No host function: one that waits would hold up those that the reader stands behind.
    if (!ok(CU(cuStreamWaitValue32_v2)(first, address, 1, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32") ||
        !ok(submit(set, first), "set"))
        return;
    submitted(hand, slot, {});
    if (!taken(submit(reader, second), "reader", reads)) return fail("the reader runs out of memory");
    submitted(hand, other, reads);
    apply(reader);
    if (!ok(CU(cuStreamWriteValue32_v2)(second, address, 1, 0), "cuStreamWriteValue32")) return;
    View& view = *hand.view;
    view.streams[slot].join(view.streams[other]);
    view.done[slot].join(view.streams[other]);
    for (const Use& use : writes) {
        buffers_[use.buffer].uses.note(use.mode, lane(slot, hand.thread), count_[lane(slot, hand.thread)]);
    }
    apply(set);
}

void Machine::sync(Hand& hand, const Op& op) {
    const unsigned slot = slot_of(hand, op.a[0]);
    if (!usable(hand, slot) || forbidden(hand)) return;
    const unsigned how = op.a[1] % 4;
    if (how == 0) {
        synchronize(hand, slot);
    } else if (how == 1) {
        const CUevent marker = event(hand, slot);
        open_gates();
        if (ok(CU(cuEventRecord)(marker, stream_of(slot)), "cuEventRecord") &&
            ok(CU(cuEventSynchronize)(marker), "cuEventSynchronize"))
            hand.view->host.join(hand.view->streams[slot]);
    } else if (how == 2) {
        if (!may_wait_for_all()) return;
        open_gates();
        synchronize_all();
        for (unsigned one = 0; one < kSlots; ++one) {
            if (usable(hand, one)) hand.view->host.join(hand.view->streams[one]);
        }
    } else {
        const CUresult result = CU(cuStreamQuery)(stream_of(slot));
        if (result != CUDA_ERROR_NOT_READY) ok(result, "cuStreamQuery");
    }
}

}  // namespace rnd

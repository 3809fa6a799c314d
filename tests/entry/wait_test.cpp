// Threads that wait: what is foretold comes in meanwhile (LMS_POLICY=next-use).
#include <array>
#include <chrono>

#include "tests/entry/gate.h"

namespace {

// Twice as many buffers as the GPU holds, used one after the other, round after round.
struct Rounds {
    static constexpr std::size_t kBuffers = 16;

    Rounds() {
        for (std::size_t i = 0; i < kBuffers; ++i)
            buffers.push_back(std::make_unique<rig::Buffer>(rig::kBuffer, i));
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        use(0);
        OK(cuStreamSynchronize, stream);
        // That moves do not wait for work that is held up must have been seen before any is made ahead of
        // need.
        CUstream other = nullptr;
        OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
        rig::Gate gate;
        gate.hold_up(other);
        rig::bring_in(buffers[0]->at(), buffers[0]->bytes(), other);
        for (std::size_t i = 1; i < kBuffers; ++i) use(i);
        gate.open();
        OK(cuStreamSynchronize, other);
        for (std::size_t i = 0; i < 12 * kBuffers; ++i) use(i % kBuffers);
        OK(cuStreamSynchronize, stream);
    }
    void use(std::size_t i) { rig::bring_in(buffers[i]->at(), buffers[i]->bytes(), stream); }
    bool all_intact() const {
        bool all = true;
        for (std::size_t i = 0; i < kBuffers; ++i) all &= buffers[i]->holds(i);
        return all;
    }

    std::vector<std::unique_ptr<rig::Buffer>> buffers;
    CUstream stream = nullptr;
};

// `wait` comes back once what was submitted is over; the first of what comes next that was not there is by
// then.
void wait_while_held_up(void (*wait)(const Rounds&), CUstream where = nullptr) {
    const rig::Gpu gpu;
    Rounds rounds;
    if (where != nullptr) rounds.stream = where;
    const auto is_there = [&](std::size_t i) { return rounds.buffers[i % Rounds::kBuffers]->resident(); };
    // On to where something is missing of what fits: on a slow machine all of it may have come in by now.
    constexpr std::size_t kFit = Rounds::kBuffers / 2;
    std::size_t at = 0;
    const auto all_there = [&] {
        bool all = true;
        for (std::size_t i = at + 2; i < at + kFit; ++i) all &= is_there(i);
        return all;
    };
    rounds.use(at);
    OK(cuStreamSynchronize, rounds.stream);
    while (all_there() && at < 4 * Rounds::kBuffers) {
        rounds.use(++at % Rounds::kBuffers);
        OK(cuStreamSynchronize, rounds.stream);
    }
    rig::Gate gate;
    gate.hold_up(rounds.stream);
    // On to where what is not there is needed next.
    std::size_t next = at + 1;
    do rounds.use(next % Rounds::kBuffers);
    while (++next < at + kFit && is_there(next));
    EXPECT(next < at + kFit);
    const auto there = [&] { return is_there(next); };
    bool came = false;
    std::thread opening([&] {
        for (int ms = 0; ms < 2000 && !came; ++ms) {
            came = there();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        gate.open();
    });
    wait(rounds);
    opening.join();
    EXPECT(came);
    for (std::size_t i = 2; i < 2 * Rounds::kBuffers; ++i) rounds.use(i % Rounds::kBuffers);
    EXPECT(rounds.all_intact());
}

}  // namespace

// Past the shim, which does not see it then.
BODY(over_already) {
    const rig::Gpu gpu;
    Rounds rounds;
    std::vector<bool> there(Rounds::kBuffers);
    const auto look = [&] {
        for (std::size_t i = 0; i < Rounds::kBuffers; ++i) there[i] = rounds.buffers[i]->resident();
        return there;
    };
    for (std::size_t i = 0; i < 2 * Rounds::kBuffers; ++i) {
        rounds.use(i % Rounds::kBuffers);
        EXPECT(SIM(cuCtxSynchronize)() == CUDA_SUCCESS);
        const std::vector<bool> before = look();
        OK(cuStreamSynchronize, rounds.stream);
        EXPECT(look() == before);
    }
    EXPECT(rounds.all_intact());
}

BODY(held_up_stream) {
    wait_while_held_up([](const Rounds& rounds) { OK(cuStreamSynchronize, rounds.stream); });
}
BODY(held_up_stream_ptsz) {
    wait_while_held_up([](const Rounds& rounds) { OK(cuStreamSynchronize_ptsz, rounds.stream); });
}
BODY(held_up_context) {
    wait_while_held_up([](const Rounds&) { OK(cuCtxSynchronize); });
}
BODY(held_up_context_v2) {
    wait_while_held_up([](const Rounds&) {
        CUcontext context = nullptr;
        OK(cuCtxGetCurrent, &context);
        OK(cuCtxSynchronize_v2, context);
    });
}

BODY(held_up_event) {
    wait_while_held_up([](const Rounds& rounds) {
        CUevent event = nullptr;
        OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
        OK(cuEventRecord, event, rounds.stream);
        OK(cuEventSynchronize, event);
        OK(cuEventQuery, event);
        OK(cuEventDestroy_v2, event);
    });
}

BODY(held_up_copy) {
    wait_while_held_up(
        [](const Rounds& rounds) {
            std::uint32_t word = 0;
            OK(cuMemcpyDtoH_v2, &word, rounds.buffers[1]->at(), sizeof word);
        },
        CU_STREAM_LEGACY);
}

// Though the stream is given more all the time, the wait is over with what was there.
void wait_while_fed(void (*wait)(const Rounds&, CUevent)) {
    const rig::Gpu gpu;
    Rounds rounds;
    CUevent event = nullptr;
    OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    std::array<rig::Gate, 400> gates;
    gates[0].hold_up(rounds.stream);
    rounds.use(0);
    rounds.use(1);
    OK(cuEventRecord, event, rounds.stream);
    std::atomic<bool> is_over{false};
    std::size_t last = 0;
    std::thread feeding([&] {
        OK(cuCtxSetCurrent, gpu.context);
        // Always held up: by the next before it is let go by the last.
        for (; last + 1 < gates.size() && !is_over; ++last) {
            gates[last + 1].hold_up(rounds.stream);
            OK(cuEventRecord, event, rounds.stream);
            gates[last].open();
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        EXPECT(is_over);
        gates[last].open();
    });
    wait(rounds, event);
    is_over = true;
    feeding.join();
    for (std::size_t i = 2; i < Rounds::kBuffers; ++i) rounds.use(i);
    EXPECT(rounds.all_intact());
}
BODY(fed_stream) {
    wait_while_fed([](const Rounds& rounds, CUevent) { OK(cuStreamSynchronize, rounds.stream); });
}
BODY(fed_event) {
    wait_while_fed([](const Rounds&, CUevent event) { OK(cuEventSynchronize, event); });
}

TEST_CASE("wait: nothing is brought in for who waits for what is over already") {
    rig::run_both("over_already", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}

TEST_CASE("wait: who waits for a stream does not wait for what it is given meanwhile") {
    rig::run_both("fed_stream", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}

TEST_CASE("wait: who waits for an event does not wait for its being recorded again and again") {
    rig::run_both("fed_event", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}

TEST_CASE("wait: what is foretold comes in while a thread waits for an event" *
          doctest::test_suite("waits-event")) {
    rig::run_both("held_up_event", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}
TEST_CASE("wait: what is foretold comes in while a thread waits for a copy") {
    rig::run_both("held_up_copy", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}
TEST_CASE("wait: what is foretold comes in while a thread waits for a stream" *
          doctest::test_suite("waits-stream")) {
    rig::run_both("held_up_stream", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}
TEST_CASE(
    "wait: what is foretold comes in while a thread waits for a stream, with per-thread default streams" *
    doctest::test_suite("waits-stream-ptsz")) {
    rig::run_both("held_up_stream_ptsz", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}
TEST_CASE("wait: what is foretold comes in while a thread waits for its context" *
          doctest::test_suite("waits-context")) {
    rig::run_both("held_up_context", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}
TEST_CASE("wait: what is foretold comes in while a thread waits for a context by its handle" *
          doctest::test_suite("waits-context-v2")) {
    rig::run_both("held_up_context_v2", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}

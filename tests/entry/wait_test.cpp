// Threads that wait: what is foretold comes in meanwhile (LMS_POLICY=next-use).
#include <array>
#include <chrono>
#include <functional>
#include <sstream>

#include "tests/entry/gate.h"
#include "tests/support/process.h"
#include "tests/support/scratch.h"

namespace {

// Twice as many buffers as the GPU holds, used one after the other, round after round.
struct Rounds {
    static constexpr std::size_t kBuffers = 16, kSpare = 64 << 10;

    // Of the spare ones each can be freed once.
    explicit Rounds(std::size_t count = 0) : spares(count) {
        for (CUdeviceptr& spare : spares) OK(cuMemAlloc_v2, &spare, kSpare);
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
    void free_spare() {
        OK(cuMemFree_v2, spares.back());
        spares.pop_back();
    }
    void use(std::size_t i) { rig::bring_in(buffers[i]->at(), buffers[i]->bytes(), stream); }
    bool all_intact() const {
        bool all = true;
        for (std::size_t i = 0; i < kBuffers; ++i) all &= buffers[i]->holds(i);
        return all;
    }

    std::vector<std::unique_ptr<rig::Buffer>> buffers;
    std::vector<CUdeviceptr> spares;
    CUstream stream = nullptr;
};

// `wait` comes back once what was submitted is over; the first of what comes next that was not there is by
// then.
void wait_while_held_up(const std::function<void(Rounds&)>& wait, CUstream where = nullptr,
                        std::size_t spares = 0) {
    const rig::Gpu gpu;
    Rounds rounds(spares);
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

constexpr std::size_t kHeldUp = 8;

// The driver hears of cuProfilerStop as the wait begins and ends.
BODY(held_up_streams) {
    const rig::Gpu gpu;
    Rounds rounds;
    std::array<rig::Gate, kHeldUp> gates;
    for (std::size_t i = 0; i < kHeldUp; ++i) {
        OK(cuStreamCreate, &rounds.stream, CU_STREAM_NON_BLOCKING);
        gates[i].hold_up(rounds.stream);
        rounds.use(0);
    }
    std::thread opening([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        for (rig::Gate& gate : gates) gate.open();
    });
    OK(cuProfilerStop);
    OK(cuCtxSynchronize);
    OK(cuProfilerStop);
    opening.join();
    EXPECT(rounds.all_intact());
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

BODY(held_up_free) {
    wait_while_held_up([](Rounds& rounds) { rounds.free_spare(); }, nullptr, 1);
}

// A second a megabyte, in simulated time, in which all else takes next to none.
const rig::Environment kSlowLink = {{"LMS_POLICY", "next-use"},
                                    {"SIMCUDA_CLOCK", "simulated"},
                                    {"SIMCUDA_H2D_GBPS", "0.001"},
                                    {"SIMCUDA_D2H_GBPS", "0.001"}};

constexpr std::size_t kFrees = 4;

// `wait` waits for work that is over at once, while the shim brings in what comes next.
void wait_beside_copies(void (*wait)(Rounds&)) {
    const rig::Gpu gpu;
    Rounds rounds(kFrees);
    CUevent before = nullptr, after = nullptr;
    OK(cuEventCreate, &before, CU_EVENT_DEFAULT);
    OK(cuEventCreate, &after, CU_EVENT_DEFAULT);
    std::size_t waits = 0;
    for (std::size_t at = 0; at < 4 * Rounds::kBuffers && waits < kFrees; ++at) {
        const bool stays = rounds.buffers[at % Rounds::kBuffers]->resident();
        OK(cuStreamSynchronize, rounds.stream);
        OK(cuEventRecord, before, rounds.stream);
        rounds.use(at % Rounds::kBuffers);
        if (!stays) continue;
        wait(rounds);
        ++waits;
        OK(cuEventRecord, after, rounds.stream);
        OK(cuEventSynchronize, after);
        float ms = 0;
        OK(cuEventElapsedTime, &ms, before, after);
        EXPECT(ms < 50);  // of 500 that a buffer's copy takes
    }
    EXPECT(waits > 0);
    for (std::size_t i = 0; i < 2 * Rounds::kBuffers; ++i) rounds.use(i % Rounds::kBuffers);
    EXPECT(rounds.all_intact());
}
BODY(free_beside_copies) {
    wait_beside_copies([](Rounds& rounds) { rounds.free_spare(); });
}
BODY(context_beside_copies) {
    wait_beside_copies([](Rounds&) { OK(cuCtxSynchronize); });
}
BODY(context_v2_beside_copies) {
    wait_beside_copies([](Rounds&) {
        CUcontext context = nullptr;
        OK(cuCtxGetCurrent, &context);
        OK(cuCtxSynchronize_v2, context);
    });
}

// Beside such copies a free, and who waits for a context, wait for what has nothing to do with buffers, in a
// stream that is there or gone, or a thread's own.
void wait_beside_work(const std::function<void(rig::Gate&)>& hold_up, bool frees) {
    const rig::Gpu gpu;
    Rounds rounds(1);
    rig::Gate gate;
    std::size_t at = 0;
    while (!rounds.buffers[at % Rounds::kBuffers]->resident()) rounds.use(at++ % Rounds::kBuffers);
    OK(cuStreamSynchronize, rounds.stream);
    hold_up(gate);
    std::atomic<bool> opened{false};
    std::thread opening([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        opened = true;
        gate.open();
    });
    rounds.use(at % Rounds::kBuffers);
    if (frees) {
        rounds.free_spare();
    } else {
        OK(cuCtxSynchronize);
    }
    EXPECT(opened.load());
    opening.join();
    for (std::size_t i = 0; i < Rounds::kBuffers; ++i) rounds.use(i);
    EXPECT(rounds.all_intact());
}
void hold_up_stream(rig::Gate& gate) {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    gate.hold_up(stream);
}
void hold_up_destroyed_stream(rig::Gate& gate) {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    gate.hold_up(stream);
    OK(cuStreamDestroy_v2, stream);
}
// A thread's own, which was never given anything else.
void in_own_thread(const std::function<void()>& body) {
    CUcontext context = nullptr;
    OK(cuCtxGetCurrent, &context);
    std::thread([&] {
        OK(cuCtxSetCurrent, context);
        body();
    }).join();
}
void hold_up_own_stream(rig::Gate& gate) {
    in_own_thread([&] { gate.hold_up(CU_STREAM_PER_THREAD); });
}
void hold_up_own_stream_as_null(rig::Gate& gate) {
    in_own_thread([&] { gate.hold_up_own(); });
}
void hold_up_own_stream_by_callback(rig::Gate& gate) {
    in_own_thread([&] { gate.hold_up_by_callback(CU_STREAM_PER_THREAD); });
}

void hold_up_own_stream_by_v2(rig::Gate& gate) {
    in_own_thread([&] { gate.hold_up_by("cuLaunchHostFunc_v2", CU_STREAM_PER_THREAD); });
}
void hold_up_own_stream_by_v2_ptsz(rig::Gate& gate) {
    in_own_thread([&] { gate.hold_up_by("cuLaunchHostFunc_v2_ptsz", nullptr); });
}

#define BESIDE_WORK(name)                        \
    BODY(free_beside_##name) {                   \
        wait_beside_work(hold_up_##name, true);  \
    }                                            \
    BODY(context_beside_##name) {                \
        wait_beside_work(hold_up_##name, false); \
    }
BESIDE_WORK(stream)
BESIDE_WORK(destroyed_stream)
BESIDE_WORK(own_stream)
BESIDE_WORK(own_stream_as_null)
BESIDE_WORK(own_stream_by_callback)
BESIDE_WORK(own_stream_by_v2)
BESIDE_WORK(own_stream_by_v2_ptsz)

const char* const kWork[] = {"stream", "destroyed_stream", "own_stream", "own_stream_as_null",
                             "own_stream_by_callback"};

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
TEST_CASE("wait: a look at several streams changes the thread's capture mode there and back once") {
    const Scratch scratch;
    const std::string log = scratch.path("calls");
    const rig::Outcome outcome = rig::run("held_up_streams", rig::Driver::Simulated,
                                          {{"LMS_POLICY", "next-use"}, {"SIMCUDA_LOG", log}});
    CHECK(outcome.failures == "");
    std::size_t stops = 0, queries = 0, exchanges = 0;
    std::istringstream lines(support::read_file(log));
    for (std::string prefix, call, rest; lines >> prefix >> call && std::getline(lines, rest);) {
        stops += call == "cuProfilerStop";
        queries += stops == 1 && call == "cuEventQuery";
        exchanges += stops == 1 && call == "cuThreadExchangeStreamCaptureMode";
    }
    CHECK(stops == 2);
    CHECK(queries >= kHeldUp);
    CHECK(exchanges <= queries);
}
TEST_CASE("wait: what is foretold comes in while a thread waits to free memory" *
          doctest::test_suite("waits-free")) {
    rig::run_both("held_up_free", rig::Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}
TEST_CASE("wait: who frees memory does not wait for the copies of the shim" *
          doctest::test_suite("waits-free-copies")) {
    rig::run_both("free_beside_copies", rig::Driver::Simulated, kSlowLink);
}
TEST_CASE("wait: who waits for a context does not wait for the copies of the shim") {
    for (const char* const body : {"context_beside_copies", "context_v2_beside_copies"})
        rig::run_both(body, rig::Driver::Simulated, kSlowLink);
}

// A hundredth of a second a buffer.
const rig::Environment kLateCopies = {
    {"LMS_POLICY", "next-use"}, {"SIMCUDA_H2D_GBPS", "0.05"}, {"SIMCUDA_D2H_GBPS", "0.05"}};

TEST_CASE("wait: who frees memory beside copies of the shim waits for every stream" *
          doctest::test_suite("waits-free-streams")) {
    for (const std::string work : kWork)
        rig::run_both("free_beside_" + work, rig::Driver::Simulated, kLateCopies);
}
TEST_CASE("wait: who waits for a context beside copies of the shim waits for every stream") {
    for (const std::string work : kWork)
        rig::run_both("context_beside_" + work, rig::Driver::Simulated, kLateCopies);
}
TEST_CASE("wait: host functions of the newer form are waited for, too" *
          doctest::test_suite("waits-host-function-v2")) {
    for (const std::string form : {"own_stream_by_v2", "own_stream_by_v2_ptsz"}) {
        for (const std::string who : {"free_beside_", "context_beside_"})
            rig::run_both(who + form, rig::Driver::Overlay, kLateCopies);
    }
}

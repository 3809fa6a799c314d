// The driver does not say whether work is over: for once, for a while, or because nobody may ask.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "shim/program/capture.h"
#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

TEST_CASE("failures: work whose stream or fence cannot be asked for once is not over") {
    for (std::uint64_t nth = 1; nth <= 40; ++nth) {
        CAPTURE(nth);
        Scene scene(options_of(Safety::Opaque));
        const std::size_t cold = scene.make(60);
        const Gate gate = std::make_shared<std::atomic<bool>>(false);
        REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), cold, gate, false)) == CUDA_SUCCESS);
        scene.changed(cold);
        scene.open_before_remap(cold, gate);
        scene.rig.gpu().fail(Call::Query, nth, CUDA_ERROR_INVALID_HANDLE);
        scene.open_after_a_while(gate);
        scene.make(60);
        scene.rig.gpu().fail(Call::Query, 0, CUDA_SUCCESS);
        scene.check();
    }
    for (std::uint64_t nth = 1; nth <= 40; ++nth) {
        CAPTURE(nth);
        Scene scene(options_of(Safety::Args));
        const std::size_t cold = scene.make(60);
        scene.make(60);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        const Gate gate = std::make_shared<std::atomic<bool>>(false);
        REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), cold, gate, true)) == CUDA_SUCCESS);
        scene.changed(cold);
        scene.open_before_remap(cold, gate);
        scene.rig.gpu().fail(Call::Query, nth, CUDA_ERROR_INVALID_HANDLE);
        scene.open_after_a_while(gate);
        REQUIRE(scene.need(1, scene.stream) == CUDA_SUCCESS);
        scene.rig.gpu().fail(Call::Query, 0, CUDA_SUCCESS);
        scene.check();
    }
}

// Work that waits for a gate and then writes the coldest buffer, given before anything moved or after that.
struct LateWork {
    explicit LateWork(bool moved_) : scene(options_of(Safety::Args)), moved(moved_), gate(closed()) {
        const std::size_t cold = scene.make(60);
        if (moved) scene.make(60);
        if (moved) REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), cold, gate, true)) == CUDA_SUCCESS);
        scene.changed(cold);
        scene.open_before_remap(cold, gate);
    }

    // Others need its place. At the end the driver answers again.
    void press() {
        if (!moved) scene.make(60);
        REQUIRE(scene.need(1, scene.stream) == CUDA_SUCCESS);
        scene.rig.gpu().fail(Call::Query, 0, CUDA_SUCCESS);
    }

    Scene scene;
    bool moved;
    Gate gate;
};

TEST_CASE("failures: work of which the driver says nothing, for a while, is not over") {
    for (const CUresult nothing : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
        for (std::uint64_t nth = 1; nth <= 20; ++nth) {
            CAPTURE(nothing);
            CAPTURE(nth);
            LateWork late(nth > 10);
            late.scene.rig.gpu().fail(Call::Query, late.moved ? nth - 10 : nth, nothing, 30);
            late.scene.open_after_a_while(late.gate);
            late.press();
            late.scene.check();
        }
    }
}

// In a host function nothing may be asked.
TEST_CASE("failures: work whose stream or fence nobody may ask for is not over") {
    for (std::uint64_t nth = 1; nth <= 80; ++nth) {
        CAPTURE(nth);
        LateWork late(nth > 40);
        FakePort& gpu = late.scene.rig.gpu();
        const std::uint64_t query = late.moved ? nth - 40 : nth;
        gpu.fail(Call::Query, query, CUDA_ERROR_NOT_PERMITTED);
        gpu.at(Call::Query, query + 1, [&] {
            gpu.fail(Call::Query, 0, CUDA_ERROR_NOT_PERMITTED);
            late.scene.open_after_a_while(late.gate);
        });
        late.press();
        *late.gate = true;
        late.scene.check();
    }
}

TEST_CASE("failures: work in the legacy stream behind which a capture forbids a fence is not over") {
    Scene scene(options_of(Safety::Args));
    FakePort& gpu = scene.rig.gpu();
    const std::size_t cold = scene.make(60);
    scene.make(60);
    REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
    scene.rig.drain();
    scene.rig.session().see_work_over();  // or the next work would wait for its coming in
    const Gate gate = closed();
    program::capture_nears();
    { const program::CaptureBegin begin(scene.stream); }
    gpu.fail(Call::Query, 1, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 1'000);
    REQUIRE(scene.rig.submit(scene.late_write(CU_STREAM_LEGACY, cold, gate, true)) == CUDA_SUCCESS);
    gpu.fail(Call::Query, 0, CUDA_SUCCESS);
    program::capture_ended(scene.stream);
    scene.changed(cold);
    scene.open_before_remap(cold, gate);
    scene.open_after_a_while(gate);
    REQUIRE(scene.need(1, scene.stream) == CUDA_SUCCESS);
    scene.check();
}

// By a thread that has no part in the capture: who captures waits for what nobody may ask for.
TEST_CASE("failures: the first move begins while the legacy stream is fenced for a capture") {
    for (const bool is_asked : {true, false}) {
        CAPTURE(is_asked);
        Scene scene(options_of(Safety::Args, 1, false));
        FakePort& gpu = scene.rig.gpu();
        const std::size_t cold = scene.make(60);
        const Gate gate = closed();
        REQUIRE(scene.rig.submit(scene.late_write(CU_STREAM_LEGACY, cold, gate, true)) == CUDA_SUCCESS);
        scene.changed(cold);
        scene.open_before_remap(cold, gate);
        Region more{0, 60 * scene.rig.options().granularity};
        program::capture_nears();
        // The first fence is the stream's own.
        gpu.at(is_asked ? Call::Query : Call::Record, is_asked ? 1 : 2,
               [&] { CHECK(scene.rig.session().allocate(more.bytes, more.address) == CUDA_SUCCESS); });
        CHECK(scene.rig.session().capture_nears(scene.stream, true));
        { const program::CaptureBegin begin(scene.stream); }
        REQUIRE(more.address != 0);
        scene.regions.push_back(more);
        scene.expected.push_back(noise(7, more.bytes));
        gpu.forbid_legacy(true);
        *gate = true;
        std::atomic<bool> over{false};
        std::thread writing([&] {
            CHECK(scene.rig.write(scene.rig.stream(), more, scene.expected.back()) == CUDA_SUCCESS);
            over = true;
        });
        for (int ms = 0; ms < 5000 && !over; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK(over);
        gpu.forbid_legacy(false);
        program::capture_ended(scene.stream);
        writing.join();
        scene.check();
    }
}

}  // namespace
}  // namespace lms::fake

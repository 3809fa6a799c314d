// A trace that begins while the program runs: it tells what there is, then all that happens.
#include <map>
#include <memory>

#include "shim/trace/writer.h"
#include "tests/engine/scene.h"
#include "tests/support/scratch.h"
#include "tools/lms/trace_file.h"

namespace lms::fake {
namespace {

struct Recording {
    explicit Recording(session::Session& session_) : session(session_) {
        REQUIRE(trace::start(scratch.path("trace"), {}) == 0);
        session.follow_trace();
    }
    std::unique_ptr<tool::Trace> end() {
        REQUIRE(trace::stop() == 0);
        session.follow_trace();
        auto trace = std::make_unique<tool::Trace>();
        std::string problem;
        tool::read_trace_file(scratch.path("trace"), *trace, problem);
        REQUIRE(problem == "");
        CHECK(trace->ended);
        CHECK(trace->dropped == 0);
        return trace;
    }
    ~Recording() {
        if (trace::stop() == 0) session.follow_trace();
    }

    session::Session& session;
    Scratch scratch;
};

bool open_gate() {
    const bool open = program::fast_path_gate.enter();
    if (open) program::fast_path_gate.leave();
    return open;
}

// What the GPU has of each buffer, by address.
using Resident = std::map<std::uint64_t, std::uint64_t>;

Resident resident_in(Scene& scene) {
    Resident all;
    for (const Region& region : scene.regions) all[region.address] = scene.rig.on_device(region);
    return all;
}

// As the trace tells it, of all its buffers: at its beginning, or at its end.
Resident resident_by(const tool::Trace& trace, bool at_end) {
    struct Piece {
        std::uint64_t address, bytes;
        bool resident;
    };
    std::map<std::uint32_t, Piece> pieces;
    for (const trace::Event& event : trace.events) {
        if (const auto* made = std::get_if<trace::Allocation>(&event)) {
            for (const trace::Piece& piece : made->pieces)
                pieces[piece.chunk] = {made->address, piece.bytes, piece.resident};
        }
        if (!at_end) continue;
        const auto* move = std::get_if<trace::Move>(&event);
        if (move) pieces.at(move->chunk).resident = move->direction == trace::Direction::In;
        if (const auto* launch = std::get_if<trace::Launch>(&event)) {
            for (const trace::Touched& each : launch->touched) {
                if (!each.in_place && !each.may_stay) pieces.at(each.chunk).resident = true;
            }
        }
    }
    Resident all;
    for (const auto& [chunk, piece] : pieces) all[piece.address] += piece.resident ? piece.bytes : 0;
    return all;
}

TEST_CASE("trace: one that begins midway tells what is resident then, and what moves from there on") {
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Opaque, seed));
        for (int i = 0; i < 6; ++i) scene.make(16);
        scene.rig.drain();
        const Resident before = resident_in(scene);
        Recording recording(scene.rig.session());
        for (const std::size_t index : {0, 3, 1, 5, 2, 0, 4}) {
            REQUIRE(scene.need(index, scene.stream) == CUDA_SUCCESS);
            scene.rig.drain();
        }
        scene.make(8);
        scene.rig.drain();
        const Resident after = resident_in(scene);
        const auto trace = recording.end();
        CHECK(std::get<trace::Gpu>(trace->events.front()).total_bytes == 64 * 64);
        CHECK(resident_by(*trace, true) == after);
        CHECK(before != after);
        Resident begun = resident_by(*trace, false);
        begun.erase(scene.regions.back().address);
        CHECK(begun == before);
        scene.check();
    }
}

TEST_CASE("trace: while one is written all work is looked at, then none again where everything fits") {
    Scene scene(options_of(Safety::Opaque));
    const std::size_t one = scene.make(16);
    CHECK(open_gate());
    Recording recording(scene.rig.session());
    CHECK_FALSE(open_gate());
    REQUIRE(scene.need(one, scene.stream) == CUDA_SUCCESS);
    const auto trace = recording.end();
    CHECK(open_gate());
    REQUIRE(scene.need(one, scene.stream) == CUDA_SUCCESS);
    std::size_t launches = 0;
    for (const trace::Event& event : trace->events) launches += std::holds_alternative<trace::Launch>(event);
    CHECK(launches == 1);
    scene.check();
}

TEST_CASE("trace: a free in stream order is told as the program makes it, and again when its memory goes") {
    Scene scene(options_of(Safety::Opaque));
    const std::size_t one = scene.make(16);
    scene.rig.drain();
    Recording recording(scene.rig.session());
    const Gate open = std::make_shared<std::atomic<bool>>(false);
    REQUIRE(scene.rig.submit(scene.late_write(scene.stream, one, open, true)) == CUDA_SUCCESS);
    REQUIRE(scene.rig.session().free_on(scene.stream, scene.regions[one].address) == CUDA_SUCCESS);
    scene.regions.clear();
    scene.expected.clear();
    *open = true;
    scene.rig.drain();
    scene.make(16);  // for which the frees that were reached are looked at
    const auto trace = recording.end();
    std::vector<std::string> told;
    std::uint64_t launched_in = 0;
    for (const trace::Event& event : trace->events) {
        if (const auto* launch = std::get_if<trace::Launch>(&event); launch && told.empty()) {
            told.push_back("launch");
            launched_in = launch->stream;
        }
        if (const auto* freed = std::get_if<trace::StreamFree>(&event)) {
            told.push_back("stream free");
            CHECK(freed->stream == launched_in);
        }
        if (std::holds_alternative<trace::Free>(event)) told.push_back("free");
    }
    CHECK(told == std::vector<std::string>{"launch", "stream free", "free"});
    scene.check();
}

TEST_CASE("trace: a session ends while one is written, and another begins") {
    std::optional<Scene> scene(options_of(Safety::Opaque));
    Recording recording(scene->rig.session());
    scene.reset();
    CHECK(open_gate());
    scene.emplace(options_of(Safety::Opaque));
    CHECK_FALSE(open_gate());
    REQUIRE(trace::stop() == 0);
    scene->rig.session().follow_trace();
    CHECK(open_gate());
}

}  // namespace
}  // namespace lms::fake

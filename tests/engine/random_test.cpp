// Random programs over a GPU too small for them, against a model that runs them in program order.
#include <doctest/doctest.h>

#include <thread>

#include "tests/engine/program.h"

namespace lms::fake {
namespace {

std::string name_of(Safety safety) {
    return safety == Safety::Args ? "args" : safety == Safety::Opaque ? "opaque" : "strict";
}

void run_programs(RigOptions options, const ProgramOptions& shape, std::size_t threads, std::size_t steps) {
    CAPTURE(options.seed);
    CAPTURE(options.maps_host);
    CAPTURE(name_of(options.safety));
    Rig rig(options);
    std::vector<std::unique_ptr<Program>> programs;
    for (std::size_t i = 0; i < threads; ++i) {
        programs.push_back(std::make_unique<Program>(rig, shape, options.seed * 1000 + i));
    }
    std::vector<std::thread> running;
    for (const auto& program : programs) {
        running.emplace_back([&] {
            program->run(steps);
            program->verify();
        });
    }
    for (std::thread& thread : running) thread.join();
    for (const auto& program : programs) CHECK(program->problem() == "");
    CHECK(rig.gpu().violation() == "");
    for (const auto& program : programs) program->finish();
    rig.drain();
}

constexpr const char* kPolicies[] = {"lru", "next-use", "build/random/reckless.so"};

template <typename Body>
void everywhere(Body&& body) {
    for (const bool maps_host : {true, false}) {
        for (const Safety safety : {Safety::Args, Safety::Opaque, Safety::Strict}) {
            for (std::uint64_t seed = 1; seed <= 8; ++seed) {
                RigOptions options;
                options.maps_host = maps_host;
                options.safety = safety;
                options.seed = seed;
                options.policy = kPolicies[seed % 3];
                options.granules = 32 + seed % 3 * 24;
                body(options);
            }
        }
    }
}

TEST_CASE("random: one thread, three streams") {
    everywhere([](const RigOptions& options) { run_programs(options, {}, 1, 150); });
}

TEST_CASE("random: three threads, two streams each") {
    ProgramOptions shape;
    shape.streams = 2;
    shape.buffers = 5;
    shape.granules = 6;
    everywhere([&](const RigOptions& options) { run_programs(options, shape, 3, 80); });
}

// Copies out ahead of need take host memory that others want at the same time.
TEST_CASE("random: three threads, little host memory") {
    ProgramOptions shape;
    shape.streams = 2;
    shape.buffers = 6;
    shape.granules = 6;
    shape.may_run_out = true;
    everywhere([&](RigOptions options) {
        options.host_granules = 24;
        run_programs(options, shape, 3, 80);
    });
}

// A kernel that writes what it does not name needs its address to lead somewhere, so memory is mapped here.
template <typename Body>
void hidden(Body&& body) {
    for (const Safety safety : {Safety::Opaque, Safety::Strict}) {
        for (std::uint64_t seed = 1; seed <= 15; ++seed) {
            RigOptions options;
            options.safety = safety;
            options.seed = seed;
            options.policy = kPolicies[seed % 3];
            options.granules = 40;
            body(options);
        }
    }
}

TEST_CASE("random: kernels that write buffers they do not name, one thread") {
    ProgramOptions shape;
    shape.hidden = true;
    hidden([&](const RigOptions& options) { run_programs(options, shape, 1, 120); });
}

TEST_CASE("random: kernels that write buffers they do not name, three threads") {
    ProgramOptions shape;
    shape.hidden = true;
    shape.streams = 2;
    shape.buffers = 6;
    shape.granules = 6;
    hidden([&](const RigOptions& options) { run_programs(options, shape, 3, 60); });
}

}  // namespace
}  // namespace lms::fake

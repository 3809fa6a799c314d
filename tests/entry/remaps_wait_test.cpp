// A driver that changes mappings only when all work is done (SIMCUDA_PERVERSE=unmap-drains): the shim finds
// it out when the GPU first fills up, says so once, and takes no other driver for one.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/entry/rig.h"
#include "tests/support/scratch.h"

using namespace rig;

namespace {

constexpr const char* kTold = "this driver changes a mapping only when all work is done";

int times_told(const std::string& text) {
    int times = 0;
    for (std::size_t at = 0; (at = text.find(kTold, at)) != text.npos; ++at) ++times;
    return times;
}

struct Said {
    int times_told;
    std::uint64_t self_checks;
    std::uint64_t remaps_wait;  // LMS_STATS's
};

Said said(const std::string& body, Environment environment) {
    const Scratch scratch;
    const std::string stats = scratch.path("stats");
    environment.emplace("XDG_CACHE_HOME", scratch.path());
    environment["LMS_STATS"] = stats;
    const Outcome outcome = run(body, Driver::Simulated, environment);
    CAPTURE(outcome.err);
    CHECK(outcome.failures == "");
    std::ifstream file(stats);
    const auto json = nlohmann::json::parse(file, nullptr, false);
    REQUIRE(json.is_object());
    return {times_told(outcome.err), json["self_checks"], json["self_checks_remaps_wait"]};
}

}  // namespace

BODY(pressure_on_two_gpus) {
    OK(cuInit, 0);
    CUcontext contexts[2] = {};
    for (int gpu = 0; gpu < 2; ++gpu) {
        OK(cuCtxCreate_v2, &contexts[gpu], 0, gpu);
        Crowd crowd;
        crowd.press();
    }
}

TEST_CASE("remaps that wait: told once, counted, and of no other driver") {
    for (const std::string host_mapping : {"auto", "on", "off"}) {
        for (const std::string perverse :
             {"", "unmap-drains", "host-copies-fail,unmap-drains", "one-queue", "copies-queue"}) {
            CAPTURE(host_mapping);
            CAPTURE(perverse);
            const bool waits = perverse.ends_with("unmap-drains");
            const Said one = said("pressure_on_two_gpus", {{"SIMCUDA_PERVERSE", perverse},
                                                           {"SIMCUDA_DEVICES", "2"},
                                                           {"LMS_HOST_MAPPING", host_mapping}});
            CHECK(one.times_told == (waits ? 1 : 0));
            CHECK(one.self_checks == 2);
            CHECK(one.remaps_wait == (waits ? 2 : 0));
        }
    }
}

// A graph's host function waits for the thread that launches (tests/entry/safety_test.cpp).
TEST_CASE("remaps that wait: with LMS_SAFETY=strict a launch beside work that waits for its thread returns") {
    const Scratch cache;
    const Outcome outcome = run(
        "endless_graph_strict", Driver::Overlay,
        {{"SIMCUDA_PERVERSE", "unmap-drains"}, {"LMS_SAFETY", "strict"}, {"XDG_CACHE_HOME", cache.path()}});
    CAPTURE(outcome.err);
    CHECK(outcome.failures == "");
    CHECK(times_told(outcome.err) == 0);
}

// Regions that programs name (<lms/lms.h>), in the trace and in what is made of it.
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/entry/api.h"
#include "tests/support/process.h"
#include "tools/lms/trace_file.h"

using namespace rig;

BODY(api_regions) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    ANSWERS(LMS_OK, lms_region_begin("epoch 1"));
    ANSWERS(LMS_OK, lms_region_begin(std::string(100, 'x').c_str()));
    for (int i = 0; i < 2; ++i) crowd.press();
    std::thread([] {
        ANSWERS(LMS_INVALID, lms_region_end());
        ANSWERS(LMS_OK, lms_region_begin("loader"));
        ANSWERS(LMS_OK, lms_region_end());
    }).join();
    ANSWERS(LMS_OK, lms_region_end());
    // Deeper than any program's.
    for (int i = 0; i < 70; ++i) ANSWERS(LMS_OK, lms_region_begin("deep"));
    for (int i = 0; i < 70; ++i) ANSWERS(LMS_OK, lms_region_end());
    ANSWERS(LMS_OK, lms_region_end());
    ANSWERS(LMS_INVALID, lms_region_end());
}

TEST_CASE("api: regions are in the trace by their names, nested and by thread") {
    const std::string path = support::scratch_file("regions.lmstrace");
    CHECK(run("api_regions", Driver::Simulated, {{"LMS_TRACE", path}}).failures == "");
    lms::tool::Trace trace;
    std::string problem;
    lms::tool::read_trace_file(path, trace, problem);
    REQUIRE(problem == "");
    std::map<std::string, std::vector<lms::trace::Region>> regions;
    for (const lms::trace::Event& event : trace.events) {
        if (const auto* const region = std::get_if<lms::trace::Region>(&event))
            regions[std::string(region->name)].push_back(*region);
    }
    REQUIRE(regions.size() == 4);
    REQUIRE(regions["epoch 1"].size() == 1);
    REQUIRE(regions[std::string(63, 'x')].size() == 1);
    CHECK(regions["deep"].size() == 63);
    const lms::trace::Region& outer = regions["epoch 1"][0];
    const lms::trace::Region& inner = regions[std::string(63, 'x')][0];
    CHECK((outer.begin_ns <= inner.begin_ns && inner.end_ns <= outer.end_ns));
    CHECK(outer.thread == inner.thread);
    CHECK(regions["loader"].at(0).thread != outer.thread);

    const support::Result report = support::run({support::build_dir() + "/lms", "report", "--json", path});
    const auto json = nlohmann::json::parse(report.out, nullptr, false);
    REQUIRE(json.is_object());
    std::map<std::string, nlohmann::json> told;
    for (const nlohmann::json& each : json["regions"]) told[each["name"]] = each;
    CHECK(told.size() == 4);
    CHECK(told["deep"]["times"] == 63);
    CHECK(told["epoch 1"]["ns"] == outer.end_ns - outer.begin_ns);
    CHECK(told[std::string(63, 'x')]["bytes_in"].get<std::uint64_t>() > 0);
    CHECK(told[std::string(63, 'x')]["bytes_in"] == told["epoch 1"]["bytes_in"]);
    CHECK(told["loader"]["bytes_in"] == 0);
}

// LMS_TRACE of a whole program: a JSON document that agrees with the counters, also when the program is
// killed.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/e2e/programs.h"

using namespace e2e;

namespace {

std::uint64_t count(const nlohmann::json& events, const std::string& category,
                    const std::string& direction = "") {
    return static_cast<std::uint64_t>(
        std::count_if(events.begin(), events.end(), [&](const nlohmann::json& event) {
            return event.value("cat", "") == category &&
                   (direction.empty() || event["args"].value("direction", "") == direction);
        }));
}

std::uint64_t bytes_moved(const nlohmann::json& events, const std::string& direction) {
    std::uint64_t sum = 0;
    for (const nlohmann::json& event : events) {
        if (event.value("cat", "") != "move" || event["args"]["direction"] != direction) continue;
        sum += event["args"]["bytes"].get<std::uint64_t>();
    }
    return sum;
}

}  // namespace

TEST_CASE("trace: tells every allocation, launch and move") {
    const std::string path = support::scratch_file("trace.json");
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    const auto events = nlohmann::json::parse(support::read_file(path), nullptr, false);
    REQUIRE(events.is_array());
    CHECK(count(events, "launch") == run.stats.at("launches"));
    CHECK(count(events, "move", "in") == run.stats.at("fills"));
    CHECK(count(events, "move", "out") == run.stats.at("evictions"));
    CHECK(bytes_moved(events, "in") == run.stats.at("bytes_in"));
    CHECK(bytes_moved(events, "out") == run.stats.at("bytes_out"));
    CHECK(count(events, "allocation") == run.stats.at("allocations") + run.stats.at("frees"));
    CHECK(run.stats.at("evictions") > 0);
    const auto from_main = [](const nlohmann::json& event) {
        return event.value("name", "") == "allocate" &&
               event["args"]["call site"].dump().find("vector_add") != std::string::npos;
    };
    CHECK(std::any_of(events.begin(), events.end(), from_main));
}

TEST_CASE("trace: residency tells where the bytes are that are allocated") {
    const std::string path = support::scratch_file("trace.json");
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::uint64_t allocated = 0;
    std::uint64_t most_on_host = 0;
    for (const auto& event : nlohmann::json::parse(support::read_file(path))) {
        const auto& args = event.value("args", nlohmann::json::object());
        if (event["name"] == "allocate") allocated += args["bytes"].get<std::uint64_t>();
        if (event.value("cat", "") != "residency") continue;
        const std::uint64_t on_host = args["host"];
        CHECK(args["resident"].get<std::uint64_t>() + on_host <= allocated);
        most_on_host = std::max(most_on_host, on_host);
    }
    CHECK(most_on_host >= allocated - (4 << 20));
}

TEST_CASE("trace: what cannot be written is told in one line, and the program runs") {
    const std::pair<std::string, std::string> wrong[] = {
        {"/no/folder/trace", "No such file or directory"},
        {"/tmp", "Is a directory"},
    };
    for (const auto& [path, reason] : wrong) {
        const Run run = run_shimmed({"vector_add", "1"}, "16M", {{"LMS_TRACE", path}});
        CHECK(run.status == 0);
        CHECK(run.err == "lms: LMS_TRACE=" + path + ": cannot write: " + reason + "; no trace\n");
    }
}

TEST_CASE("trace: whole after the program was killed") {
    const std::string path = support::scratch_file("trace.json");
    const std::vector<std::string> forever = {"patterns", "--bytes", "600000", "--steps", "100000000"};
    const Environment environment = {{"SIMCUDA_GRANULARITY", "64K"},
                                     {"LD_LIBRARY_PATH", support::build_dir() + "/sim"},
                                     {"LD_PRELOAD", support::build_dir() + "/liblmsshim.so"},
                                     {"SIMCUDA_MEMORY", "6M"},
                                     {"LMS_THRESHOLD", "16K"},
                                     {"LMS_TRACE", path}};
    std::vector<std::string> command = forever;
    command[0] = support::build_dir() + "/apps/patterns";
    const support::Result result = support::run(command, environment, 2);
    CHECK(result.status == 137);
    const auto events = nlohmann::json::parse(support::read_file(path), nullptr, false);
    REQUIRE(events.is_array());
    CHECK(count(events, "move", "out") > 0);
}

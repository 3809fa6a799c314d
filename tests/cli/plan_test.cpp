// lms plan and lms run --limit 50% as a user meets them.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/process.h"

namespace {

using support::Result;

Result lms(const std::string& words) {
    return support::run({"sh", "-c", "exec " + support::build_dir() + "/lms " + words});
}

// Status 2, nothing on stdout, one line on stderr with `expected` in it.
void check_refused(const std::string& words, const std::string& expected) {
    CAPTURE(words);
    const Result result = lms(words);
    CHECK(result.status == 2);
    CHECK(result.out.empty());
    CHECK(result.err.starts_with("lms"));
    CHECK(std::ranges::count(result.err, '\n') == 1);
    CHECK_MESSAGE(result.err.find(expected) != std::string::npos, result.err);
}

const std::string kStep = "tools/experiments/steps/vdsr.txt";

}  // namespace

TEST_CASE("plan: wrong use is told in one line, with what was found and what is accepted") {
    check_refused("plan", "nothing to plan; expected a trace, a recorded step, or -- PROGRAM");
    check_refused("plan x.trace -- true", "x.trace and a program; expected one of the two");
    check_refused("plan /nowhere", "/nowhere: No such file or directory");
    check_refused("plan /dev/zero", "/dev/zero: no trace");
    check_refused("plan README.md", "README.md: no trace");
    check_refused("plan " + kStep, "give --size N, crops x (side / 256)^2");
    check_refused("plan " + kStep + " --size 0", "--size");
    check_refused("plan x --gpu nothing",
                  "--gpu=nothing: no GPU of that name is known; expected NAME,MEMORY,LINK");
    check_refused("plan x --gpu v100,16G", "--gpu=v100,16G: expected NAME,MEMORY,LINK");
    check_refused("plan x --context much", "--context=much: expected a size");
    check_refused("plan x --kernel-ms -1", "--kernel-ms");
    check_refused("plan x --seconds 3", "--seconds is for a program");
    check_refused("plan x --sim-memory 3G", "--sim-memory is for a program");
    check_refused("plan --size 3 -- true", "--size is for a recorded step");
    check_refused("plan README.md --size 3", "README.md: no recorded step, and --size is for one");
    check_refused("run --limit 50% true", "--limit=50%: expected a size in bytes");
    check_refused("run --sim --limit 0% true", "--limit=0%: expected a share from 1% to 100%");
    check_refused("run --sim --limit 5x% true", "--limit=5x%: expected a share");
}

TEST_CASE("plan: what is planned is not written over by the page") {
    const std::string copy = support::scratch_file("step.txt");
    const std::string text = support::read_file(kStep);
    std::ofstream(copy) << text;
    check_refused("plan " + copy + " --size 2 --html " + copy, "that is what is planned");
    CHECK(support::read_file(copy) == text);
}

TEST_CASE("plan: of a recorded step, for a list of GPUs: text, JSON and a page") {
    const std::string two = "plan " + kStep + " --size 96 --gpu v100 --gpu big,64G,16,12";
    const Result json = lms(two + " --json");
    REQUIRE_MESSAGE(json.status == 0, json.err);
    const auto all = nlohmann::json::parse(json.out);
    REQUIRE(all["gpus"].size() == 2);
    CHECK(all["kernel_times"].get<std::string>().find("60 %") != std::string::npos);
    const auto &small = all["gpus"][0], &large = all["gpus"][1];
    CHECK(small["fits"] == false);
    CHECK(small["slowdown"] > 1.1);
    CHECK(small["bytes_in"] > std::uint64_t{10} << 30);
    CHECK(small["host_bytes"] > std::uint64_t{10} << 30);
    CHECK(large["fits"] == true);
    CHECK(large["bytes_in"] == 0);
    CHECK(large["kernels_as_on"] == "a100");
    CHECK(large["out_bytes_per_s"] == 12e9);
    CHECK(all["smallest"] == "big");
    const std::string page = support::scratch_file("plan.html");
    const Result text = lms(two + " --html " + page);
    REQUIRE_MESSAGE(text.status == 0, text.err);
    CHECK(text.out.find("Smallest with less than 10 % loss: big, 64G.") != std::string::npos);
    const std::string html = support::read_file(page);
    CHECK(html.find("<polyline") != std::string::npos);
    CHECK(html.ends_with("</html>\n"));
    CHECK(html.find("<script") == std::string::npos);
    const Result nowhere = lms(two + " --html /nowhere/plan.html");
    CHECK(nowhere.status == 125);
    CHECK(nowhere.err == "lms plan: --html /nowhere/plan.html: No such file or directory\n");
    // Those that are known.
    CHECK(nlohmann::json::parse(lms("plan " + kStep + " --size 16 --json").out)["gpus"].size() > 10);
}

TEST_CASE("plan: a program's kernels take what the simulated GPU counts, or what is given") {
    const std::string program = " -- build/apps/weights 4 40";
    const std::string gpus = "plan --json --gpu a100,8M,1 --gpu v100,3M,0.1 --context 0 --sim-memory 256M";
    const auto run = [&](const std::string& more) {
        return support::run({"sh", "-c", "exec build/lms " + gpus + more + program},
                            {{"LMS_THRESHOLD", "64K"}, {"SIMCUDA_GRANULARITY", "64K"}});
    };
    const Result counted = run("");
    REQUIRE_MESSAGE(counted.status == 0, counted.err);
    // What the program prints is not in the way.
    const auto all = nlohmann::json::parse(counted.out);
    CHECK(all["kernel_times"].get<std::string>().find("counted") != std::string::npos);
    CHECK(all["gpus"][0]["fits"] == true);
    CHECK(all["gpus"][1]["fits"] == false);
    CHECK(all["gpus"][1]["bytes_in"] > 0);
    const auto given = nlohmann::json::parse(run(" --kernel-ms 50").out);
    CHECK(given["kernel_times"] == "given: 50 ms each");
    CHECK(given["gpus"][0]["seconds"] > 10 * all["gpus"][0]["seconds"].get<double>());
    CHECK(lms("plan -- /nowhere/program").status == 127);
    CHECK(lms("plan -- true").status == 1);
}

TEST_CASE(
    "plan: kernels of native code alone need --kernel-ms, and are planned by the sizes of what they name") {
    const auto run = [](const std::string& more) {
        return support::run({"sh", "-c",
                             "exec build/lms plan --json --gpu small,3M,0.1 --context 0 --sim-memory 256M" +
                                 more + " -- build/cli/weights_native 4 40"},
                            {{"LMS_THRESHOLD", "64K"}, {"SIMCUDA_GRANULARITY", "64K"}});
    };
    const Result without = run("");
    CHECK(without.status == 1);
    CHECK_MESSAGE(
        without.err.find("before a kernel ran; kernels without PTX need --kernel-ms") != std::string::npos,
        without.err);
    const Result with = run(" --kernel-ms 2");
    REQUIRE_MESSAGE(with.status == 0, with.err);
    const auto all = nlohmann::json::parse(with.out);
    CHECK(all["kernel_times"].get<std::string>().starts_with("given: 2 ms each"));
    CHECK(all["gpus"][0]["fits"] == false);
    CHECK(all["gpus"][0]["bytes_in"] > 0);
}

TEST_CASE("plan: what a program takes beside its buffers is known where it comes after them") {
    const Result result = support::run(
        {"sh", "-c",
         "exec build/lms plan --json --gpu with,8M,1 --context 0 --sim-memory 256M -- build/apps/weights 4 "
         "40"},
        {{"LMS_THRESHOLD", "64K"}, {"SIMCUDA_GRANULARITY", "64K"}, {"SIMCUDA_MODULE_BYTES", "5M"}});
    REQUIRE_MESSAGE(result.status == 0, result.err);
    // 4 MiB of buffers; the code is loaded for the first launch.
    CHECK(nlohmann::json::parse(result.out)["gpus"][0]["fits"] == false);
}

TEST_CASE("plan: a trace tells what the program took beside its buffers, in the end") {
    const std::string trace = support::scratch_file("run.trace");
    const Result run = support::run(
        {"sh", "-c", "exec build/lms run --sim --trace " + trace + " -- build/apps/weights 4 40"},
        {{"LMS_THRESHOLD", "64K"}, {"SIMCUDA_GRANULARITY", "64K"}, {"SIMCUDA_MODULE_BYTES", "5M"}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    const Result plan = lms("plan --json --gpu with,8M,1 --gpu more,16M,1 --context 0 " + trace);
    REQUIRE_MESSAGE(plan.status == 0, plan.err);
    const auto all = nlohmann::json::parse(plan.out);
    CHECK(all["gpus"][0]["fits"] == false);
    CHECK(all["gpus"][1]["fits"] == true);
}

TEST_CASE("run: at a share of its memory a program runs twice, and ends with what is to be seen of it") {
    const Result half = lms("run --sim --limit 50% -- build/apps/weights 4 40");
    CHECK_MESSAGE(half.status == 0, half.err);
    CHECK_MESSAGE(
        half.err.find("lms: at 50 % of the 4M that its buffers take: passed\n") != std::string::npos,
        half.err);
    CHECK(half.err.find("moved ") != std::string::npos);
    // The same result twice.
    CHECK(half.out.substr(0, half.out.size() / 2) == half.out.substr(half.out.size() / 2));
    const Result all = lms("run --sim --limit 100% -- build/apps/weights 4 40");
    CHECK(all.status == 1);
    CHECK_MESSAGE(all.err.find("nothing moved") != std::string::npos, all.err);
    CHECK(lms("run --sim --limit 50% true").status == 1);
    const Result fails = lms("run --sim --limit 50% -- sh -c 'exit 7'");
    CHECK(fails.status == 7);
    CHECK(fails.err.find("fails with all its memory") != std::string::npos);
}

// LMS_TRACE of a whole program: a file that agrees with the counters, also when the program is killed, and
// what lms makes of it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/programs.h"
#include "tools/lms/analysis.h"
#include "tools/lms/trace_file.h"

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

std::unique_ptr<lms::tool::Trace> read(const std::string& path) {
    auto trace = std::make_unique<lms::tool::Trace>();
    std::string problem;
    lms::tool::read_trace_file(path, *trace, problem);
    REQUIRE_MESSAGE(problem.empty(), problem);
    return trace;
}

support::Result lms_of(std::vector<std::string> words) {
    words.insert(words.begin(), support::build_dir() + "/lms");
    return support::run(words);
}

// As `lms export` makes JSON of it.
nlohmann::json exported(const std::string& path) {
    const support::Result made = lms_of({"export", path});
    REQUIRE_MESSAGE(made.status == 0, made.err);
    return nlohmann::json::parse(made.out).at("traceEvents");
}

}  // namespace

TEST_CASE("trace: one that is called JSON says in one line how to make that of it, which tells everything") {
    const std::string path = support::scratch_file("trace.json");
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK_MESSAGE(run.err.starts_with("lms: LMS_TRACE=" + path + ": this is no JSON yet; `lms export " +
                                      path + " -o FILE` makes that of it\n"),
                  run.err);
    const nlohmann::json events = exported(path);
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
    const std::string path = support::scratch_file("trace");
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::uint64_t allocated = 0;
    std::uint64_t most_on_host = 0;
    for (const auto& event : exported(path)) {
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

TEST_CASE("trace file: tells every allocation, launch and move, and when the device made these") {
    const std::string path = support::scratch_file("trace");
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    const auto trace = read(path);
    CHECK(trace->ended);
    CHECK(trace->dropped == 0);
    const lms::tool::Analysis all = lms::tool::analyse(*trace);
    CHECK(run.stats.at("evictions") > 0);
    CHECK(all.launches == run.stats.at("launches"));
    CHECK(all.in_place_launches == run.stats.at("in_place_launches"));
    CHECK(all.in.copies == run.stats.at("fills"));
    CHECK(all.in.bytes == run.stats.at("bytes_in"));
    CHECK(all.out.copies <= run.stats.at("evictions"));
    CHECK(all.out.bytes == run.stats.at("bytes_out"));
    CHECK(all.stalls == run.stats.at("stalls"));
    CHECK(all.stall_ns == run.stats.at("stall_ns"));
    REQUIRE(all.gpus.size() == 1);
    CHECK_FALSE(all.gpus.at(0).name.empty());
    CHECK(all.gpus.at(0).most_beyond_bytes > 0);
    std::uint64_t allocated = 0;
    std::uint64_t stalled = 0;
    for (const lms::tool::BufferGroup& group : all.groups) {
        allocated += group.buffers;
        stalled += group.stall_ns;
        CHECK(group.call_site.find("vector_add") != std::string::npos);
    }
    CHECK(allocated == run.stats.at("allocations"));
    CHECK(stalled > 0);
    // By the device's clock copies of one way follow one another, and lie within the run.
    std::uint64_t before[2] = {};
    std::uint64_t timed = 0;
    std::uint64_t out = 0;
    for (const lms::trace::Event& event : trace->events) {
        const auto* const move = std::get_if<lms::trace::Move>(&event);
        if (move) out += move->direction == lms::trace::Direction::Out;
        if (!move || !move->timed) continue;
        ++timed;
        CHECK(move->begin_ns <= move->end_ns);
        CHECK(move->begin_ns >= all.begin_ns);
        CHECK(move->begin_ns + 1000 >= before[static_cast<int>(move->direction)]);
        before[static_cast<int>(move->direction)] = move->end_ns;
    }
    CHECK(timed == all.in.copies + all.out.copies);
    CHECK(out == run.stats.at("evictions"));
    // Work is over after it was launched, in the order of its stream.
    std::set<std::uint64_t> launched;
    std::uint64_t over = 0;
    for (const lms::trace::Event& event : trace->events) {
        if (const auto* const launch = std::get_if<lms::trace::Launch>(&event))
            launched.insert(launch->begin_ns);
        const auto* const work = std::get_if<lms::trace::WorkOver>(&event);
        if (!work) continue;
        CHECK(launched.contains(work->launched_ns));
        CHECK(work->at_ns > work->launched_ns);
        CHECK(work->launched_ns > over);
        over = work->launched_ns;
    }
    CHECK(over > 0);
}

TEST_CASE("trace file: when the program waited for the GPU") {
    const std::string path = support::scratch_file("trace");
    // Kernels take so long that a busy machine does not let them end before the program waits.
    const Run run =
        run_shimmed({"streams", "8"}, "4M", {{"LMS_TRACE", path}, {"SIMCUDA_KERNEL_US", "20000"}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    const auto trace = std::make_unique<lms::tool::Trace>();
    std::string problem;
    lms::tool::read_trace(support::read_file(path), *trace, problem);
    REQUIRE(problem == "");
    std::size_t waits = 0;
    std::uint64_t until_ns = 0;
    for (const lms::trace::Event& event : trace->events) {
        const auto* const wait = std::get_if<lms::trace::ProgramWait>(&event);
        if (!wait) continue;
        CHECK(wait->begin_ns >= until_ns);  // by one thread
        CHECK(wait->end_ns >= wait->begin_ns + 10'000);
        until_ns = wait->end_ns;
        ++waits;
    }
    CHECK(waits > 0);
}

TEST_CASE("trace file: whole blocks of a program that was killed, and lms report reads them") {
    const std::string path = support::scratch_file("trace");
    // So much is in the file only after moves.
    const std::string script =
        "env LD_PRELOAD=$PRELOADED $BUILT/apps/patterns --bytes 600000 --steps 100000000 & "
        "program=$!; "
        "until [ \"$(stat -c %s $TRACED 2>/dev/null || echo 0)\" -ge 20000 ]; do sleep 0.1; done; "
        "kill -9 $program; wait $program";
    const support::Result result =
        support::run({"sh", "-c", script}, {{"SIMCUDA_GRANULARITY", "64K"},
                                            {"LD_LIBRARY_PATH", support::build_dir() + "/sim"},
                                            {"SIMCUDA_MEMORY", "6M"},
                                            {"LMS_THRESHOLD", "16K"},
                                            {"LMS_TRACE", path},
                                            {"BUILT", support::build_dir()},
                                            {"PRELOADED", support::preloaded_shim()},
                                            {"TRACED", path}});
    CHECK(result.status == 137);
    const auto trace = read(path);
    CHECK_FALSE(trace->ended);
    CHECK(lms::tool::analyse(*trace).out.bytes > 0);
    const support::Result report = lms_of({"report", path});
    CHECK(report.status == 0);
    CHECK(report.out.find(" more nothing would have moved.") != std::string::npos);
    CHECK(report.err == "lms report: " + path +
                            ": the program still runs, was killed, or could not write: its end is missing\n");
}

TEST_CASE("trace file: one in which nothing is yet is not said to be of a run that nothing limited") {
    const std::string path = support::scratch_file("trace");
    REQUIRE(run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}}).status == 0);
    const std::string whole = support::read_file(path);
    const std::string head = whole.substr(0, whole.find("lsmb"));
    REQUIRE(head.size() < whole.size());
    std::ofstream(path, std::ios::binary) << head;
    const support::Result report = lms_of({"report", path});
    CHECK(report.status == 0);
    CHECK(report.out.starts_with("No data: "));
    CHECK(report.out.find("Nothing limited") == std::string::npos);
}

TEST_CASE(
    "replay: the policy that ran moves as many bytes as it did, the order that knows the future no more") {
    // The second has weights that nothing writes, and that leave without a copy.
    using Program = std::pair<std::vector<std::string>, const char*>;
    const Program programs[] = {{{"patterns", "--bytes", "600000", "--steps", "400"}, "6M"},
                                {{"weights", "4", "40"}, "2M"}};
    // In simulated time, by which copies and kernels take as long as they take there. How much comes in ahead
    // of need depends on that. They take so long that what this machine takes for a launch is nothing beside
    // it: the trace tells how long the program was on its own by the machine's clock.
    const e2e::Environment timing = {{"SIMCUDA_CLOCK", "simulated"},
                                     {"SIMCUDA_H2D_GBPS", "0.001"},
                                     {"SIMCUDA_D2H_GBPS", "0.001"},
                                     {"SIMCUDA_KERNEL_US", "100000"}};
    for (std::size_t i = 0; i < 4; ++i) {
        const std::vector<std::string>& program = programs[i / 2].first;
        const char* const memory = programs[i / 2].second;
        const std::string policy = i % 2 == 0 ? "lru" : "next-use";
        CAPTURE(program[0]);
        CAPTURE(policy);
        const std::string path = support::scratch_file("trace");
        e2e::Environment settings = timing;
        settings["LMS_TRACE"] = path;
        settings["LMS_POLICY"] = policy;
        const Run run = run_shimmed(program, memory, settings);
        REQUIRE_MESSAGE(run.status == 0, run.err);
        const support::Result result = lms_of({"replay", path, "--json"});
        REQUIRE_MESSAGE(result.status == 0, result.err);
        const auto rows = nlohmann::json::parse(result.out).at("replays");
        REQUIRE(rows.size() == 3);
        CHECK(rows[0]["policy"] == policy);
        CHECK(rows[1]["policy"] == "fewest-bytes");
        CHECK(rows[2]["policy"] == "least-time");
        for (const auto& row : rows) {
            CHECK(rows[1]["bytes_over_fewest"] <= row["bytes_over_fewest"]);
            CHECK(rows[2]["seconds"] <= row["seconds"]);
        }
        const auto live_in = static_cast<double>(run.stats.at("bytes_in"));
        const auto live_out = static_cast<double>(run.stats.at("bytes_out"));
        const auto replayed_in = rows[0]["bytes_in"].get<double>();
        const auto replayed_out = rows[0]["bytes_out"].get<double>();
        const double replayed = replayed_in + replayed_out;
        const double fewest = rows[1]["bytes_in"].get<double>() + rows[1]["bytes_out"].get<double>();
        MESSAGE(policy, ": live ", live_in, " in ", live_out, " out, replayed ", replayed_in, " and ",
                replayed_out, ", fewest ", fewest);
        CHECK(replayed_in == doctest::Approx(live_in).epsilon(0.05));
        CHECK(replayed_out == doctest::Approx(live_out).epsilon(0.05));
        CHECK(fewest < replayed);
        CHECK(lms_of({"replay", path, "--fail-above", "100"}).status == 0);
        CHECK(lms_of({"replay", path, "--fail-above", "1.0"}).status == 1);
        const auto large = nlohmann::json::parse(lms_of({"replay", path, "--limit", "1G", "--json"}).out);
        CHECK(large["replays"][0]["bytes_in"] == 0);
        CHECK(large["replays"][0]["bytes_over_fewest"].is_null());
    }
}

TEST_CASE("trace commands: a report, a page, what changed, and other formats") {
    const std::string path = support::scratch_file("trace");
    const std::string fits = support::scratch_file("fits");
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}});
    REQUIRE(run_shimmed({"vector_add", "16"}, "256M", {{"LMS_TRACE", fits}}).status == 0);

    const std::string page = support::scratch_file("page.html");
    const support::Result report = lms_of({"report", path, "--json", "--html", page});
    REQUIRE_MESSAGE(report.status == 0, report.err);
    const auto all = nlohmann::json::parse(report.out);
    // The slowdown leads, and its cost is what the other figures are parts of.
    REQUIRE(all["sentences"].size() == 4);
    const double slowdown = all["modelled_slowdown"], cost = all["cost_seconds"], seconds = all["seconds"];
    CHECK(all["sentences"][0].get<std::string>().starts_with(
        fmt::format("The run took {:.2f} times as long as with room for all", slowdown)));
    CHECK(cost == doctest::Approx(seconds - seconds / slowdown));
    CHECK(all["to_gpu"]["bytes"] == run.stats.at("bytes_in"));
    CHECK(all["buffers"].size() > 0);
    const std::string html = support::read_file(page);
    CHECK(html.find("</html>") != std::string::npos);
    CHECK(html.find("<svg") != std::string::npos);
    CHECK(html.find("http") == std::string::npos);  // fetches nothing
    CHECK(html.find("<script") == std::string::npos);
    // By its last picture, of call stacks, it knows the program's functions.
    CHECK_MESSAGE(html.find("main") != std::string::npos, html);
    REQUIRE(all["findings"].size() > 0);
    for (const auto& finding : all["findings"]) {
        CHECK_FALSE(finding["evidence"].get<std::string>().empty());
        CHECK_FALSE(finding["action"].get<std::string>().empty());
    }
    CHECK(all["buffers"][0]["frames"].size() > 1);

    const auto fitting = nlohmann::json::parse(lms_of({"report", fits, "--json"}).out);
    CHECK(fitting["to_gpu"]["bytes_per_s"].is_null());
    CHECK(fitting["sentences"][0].get<std::string>().find("Nothing limited this run") == 0);
    CHECK(lms_of({"report", fits}).out.find("at no data") != std::string::npos);

    const auto changed = nlohmann::json::parse(lms_of({"diff", path, fits, "--json"}).out);
    CHECK(changed["figures"]["to the GPU"] == nlohmann::json({run.stats.at("bytes_in"), 0}));

    const nlohmann::json perfetto = exported(path);
    CHECK(count(perfetto, "move", "in") == run.stats.at("fills"));
    double last = 0;
    for (const auto& event : perfetto) {
        if (event["ph"] == "M") continue;
        CHECK(event["ts"].get<double>() >= last);
        last = event["ts"];
    }
    const std::string csv = lms_of({"export", path, "--csv"}).out;
    CHECK(csv.starts_with("event,gpu,begin_ns,end_ns,allocation,chunk,bytes,what\n"));
    std::size_t moves = 0;
    for (std::size_t at = csv.find("\nmove in,"); at != csv.npos; at = csv.find("\nmove in,", at + 1))
        ++moves;
    CHECK(moves == run.stats.at("fills"));
}

TEST_CASE("trace commands: nothing is written in the place of the trace") {
    const std::string path = support::scratch_file("trace");
    REQUIRE(run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}}).status == 0);
    const std::string before = support::read_file(path);
    const std::string same =
        std::filesystem::path(path).parent_path() / "." / std::filesystem::path(path).filename();
    const support::Result page = lms_of({"report", path, "--html", same});
    CHECK(page.status == 2);
    CHECK(page.err == "lms report: --html " + same + ": that is the trace\n");
    for (const char* as : {"--csv", "--perfetto", "--parquet"})
        CHECK(lms_of({"export", path, as, "-o", same}).status == 2);
    CHECK(support::read_file(path) == before);
}

TEST_CASE("trace commands: how far one has come is told at a terminal, and nowhere else") {
    const std::string path = support::scratch_file("trace");
    REQUIRE(run_shimmed({"vector_add", "16"}, "4M", {{"LMS_TRACE", path}}).status == 0);
    const std::string page = support::scratch_file("page.html");
    const auto at_terminal = [&](const std::string& words) {
        return support::run({"script", "-qec", support::build_dir() + "/lms " + words, "/dev/null"}).out;
    };
    const std::string report = at_terminal("report " + path + " --html " + page);
    for (const char* line : {"\rreading the trace: 0 %", "\rlooking up functions and lines: ",
                             "\rreplaying by lru: ", "\rreplaying by fewest-bytes: ", "0 %"})
        CHECK_MESSAGE(report.find(line) != std::string::npos, report);
    // What is said is not said beside it.
    CHECK_MESSAGE(report.find(" \r" + lms_of({"report", path}).out.substr(0, 20)) != std::string::npos,
                  report);
    CHECK(at_terminal("replay " + path).find("\rreplaying by next-use: ") != std::string::npos);
    CHECK(at_terminal("diff " + path + " " + path).find("\rreading the trace: ") != std::string::npos);
    CHECK(at_terminal("export " + path + " -o " + page).find("\rwriting: 99 %") != std::string::npos);

    for (const char* command : {"report --json ", "replay --json ", "export "})
        CHECK(at_terminal(command + path).find("reading") == std::string::npos);
    for (const char* command : {"report", "replay", "export"}) CHECK(lms_of({command, path}).err.empty());
}

TEST_CASE("trace commands: what is no trace, or no option, is told in one line") {
    const std::string path = support::scratch_file("nothing");
    for (const char* command : {"report", "replay", "export"}) {
        const support::Result missing = lms_of({command, path});
        CHECK(missing.status == 2);
        CHECK(missing.err == "lms " + std::string(command) + ": " + path + ": No such file or directory\n");
        CHECK(lms_of({command, "README.md"}).status == 2);
        CHECK(lms_of({command}).status == 2);
        CHECK(lms_of({command, "--help"}).status == 0);
    }
    CHECK(lms_of({"diff", "README.md", "README.md"}).status == 2);
    // Of what has no end, too.
    CHECK(lms_of({"report", "/dev/zero"}).err.find("/dev/zero: no trace of lmsshim") != std::string::npos);
    CHECK(lms_of({"report", "/tmp"}).err == "lms report: /tmp: Is a directory\n");
    CHECK(lms_of({"report", "/dev/null"}).err.find("/dev/null: no trace of lmsshim") != std::string::npos);
    CHECK(lms_of({"replay", "x", "--policy", "nonsense"}).err.find("--policy=nonsense: expected ") !=
          std::string::npos);
    CHECK(lms_of({"replay", "x", "--limit", "nonsense"}).status == 2);
    CHECK(lms_of({"replay", "x", "--link", "fast"}).status == 2);
}

TEST_CASE("trace file: of a sample of its launches the time on the GPU is told, and reported") {
    const std::string path = support::scratch_file("trace");
    // By a clock of the simulated GPU's own, in which every kernel takes so long.
    const Run run =
        run_shimmed({"patterns", "--bytes", "600000", "--steps", "400"}, "4M",
                    {{"LMS_TRACE", path}, {"SIMCUDA_CLOCK", "simulated"}, {"SIMCUDA_KERNEL_US", "1500"}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    const auto trace = read(path);
    const lms::tool::Analysis all = lms::tool::analyse(*trace);
    std::uint64_t samples = 0;
    for (const auto& kernel : all.kernels) {
        const auto& use = kernel.second;
        CAPTURE(kernel.first);
        samples += use.samples;
        CHECK(use.launches > 0);
        // And what the program does in between takes a few microseconds of it.
        CHECK(use.sampled_ns >= use.samples * 1'500'000);
        CHECK(use.sampled_ns < use.samples * 1'600'000);
    }
    // Two in a row are at most 31 launches apart; those on their way at the end are not told.
    CHECK(samples + 64 >= all.launches / 31);
    CHECK(samples > 0);
    CHECK(samples < all.launches / 4);
    const auto report = nlohmann::json::parse(lms_of({"report", path, "--json"}).out);
    CHECK(report["kernels"].size() == all.kernels.size());
    CHECK(report["kernels"][0]["mean_ns"] >= 1.5e6);
    CHECK(report["kernels_busy_share"] > 0);
    const std::string text = lms_of({"report", path}).out;
    CHECK_MESSAGE(text.find("by a sample of their launches") != std::string::npos, text);
    CHECK(lms_of({"export", path, "--csv"}).out.find("\nkernel,0,") != std::string::npos);
    const std::string page = support::scratch_file("page.html");
    REQUIRE(lms_of({"report", path, "--html", page}).status == 0);
    const std::string html = support::read_file(page);
    const std::size_t table = html.find("<h2>Kernels</h2>");
    REQUIRE(table != html.npos);
    for (const auto& kernel : report["kernels"]) {
        if (kernel["samples"] == 0) continue;
        CHECK_MESSAGE(html.find(kernel["name"].get<std::string>(), table) != html.npos, html);
    }
    CHECK(html.find("of the time in which kernels ran") != html.npos);
}

TEST_CASE(
    "trace file: what the program itself copies is told, when the device did it, and how fast the links "
    "are") {
    const std::string path = support::scratch_file("trace");
    // By a clock of the simulated GPU's own, and links of so many bytes a nanosecond.
    constexpr double kIn = 2, kOut = 1;
    const Run run = run_shimmed({"vector_add", "16"}, "4M",
                                {{"LMS_TRACE", path},
                                 {"SIMCUDA_CLOCK", "simulated"},
                                 {"SIMCUDA_H2D_GBPS", "2"},
                                 {"SIMCUDA_D2H_GBPS", "1"}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    const auto trace = read(path);
    const lms::tool::Analysis all = lms::tool::analyse(*trace);
    // Two arrays come and one goes. What is copied over a link is timed.
    using lms::trace::CopyWay;
    const auto& to_gpu = all.own_copies[static_cast<std::size_t>(CopyWay::ToGpu)];
    const auto& to_host = all.own_copies[static_cast<std::size_t>(CopyWay::ToHost)];
    CHECK(to_gpu.bytes == 2 * to_host.bytes);
    CHECK(to_host.bytes > 4 << 20);
    std::map<CopyWay, std::uint64_t> over_links;
    for (const lms::trace::Event& event : trace->events) {
        const auto* const launch = std::get_if<lms::trace::Launch>(&event);
        if (launch && std::ranges::none_of(launch->touched, &lms::trace::Touched::in_place))
            over_links[launch->copied.way] += launch->copied.bytes;
    }
    CHECK(over_links[CopyWay::ToHost] > 0);
    CHECK(to_gpu.timed_bytes == over_links[CopyWay::ToGpu]);
    CHECK(to_host.timed_bytes == over_links[CopyWay::ToHost]);
    const auto ns_per_byte = [](const lms::tool::LinkUse& use) {
        return static_cast<double>(use.timed_ns) / static_cast<double>(use.timed_bytes);
    };
    CHECK(ns_per_byte(to_gpu) >= 1 / kIn);
    CHECK(ns_per_byte(to_host) >= 1 / kOut);
    std::uint64_t in = 0, out = 0;
    for (const lms::trace::Event& event : trace->events) {
        if (const auto* const copy = std::get_if<lms::trace::CopyTime>(&event)) {
            CHECK(copy->begin_ns >= all.begin_ns);
            CHECK(copy->end_ns <= all.end_ns);
        }
        const auto* const speeds = std::get_if<lms::trace::LinkSpeeds>(&event);
        if (!speeds) continue;
        in = speeds->in_bytes_per_s;
        out = speeds->out_bytes_per_s;
    }
    CHECK(static_cast<double>(in) == doctest::Approx(kIn * 1e9).epsilon(0.2));
    CHECK(static_cast<double>(out) == doctest::Approx(kOut * 1e9).epsilon(0.2));

    const auto report = nlohmann::json::parse(lms_of({"report", path, "--json"}).out);
    CHECK(report["own_copies"]["to_host"]["bytes"] == to_host.bytes);
    CHECK(report["own_copies"]["on_gpu"]["bytes_per_s"].is_null());
    CHECK(report["modelled_slowdown"] >= 1.0);
    const std::string text = lms_of({"report", path}).out;
    CHECK_MESSAGE(text.find("the program's own copies: to the GPU ") != text.npos, text);
    const std::string csv = lms_of({"export", path, "--csv"}).out;
    for (const char* kind : {"\ncopy,0,", "\nlink in,0,", "\nlink out,0,"}) CHECK(csv.find(kind) != csv.npos);
    const std::string page = support::scratch_file("page.html");
    REQUIRE(lms_of({"report", path, "--html", page}).status == 0);
    CHECK(support::read_file(page).find("to the host, the program's own copies") != std::string::npos);
}

TEST_CASE("trace file: ranges that a program names by NVTX are regions of it") {
    const std::string path = support::scratch_file("trace");
    const Run run = run_shimmed({"nvtx_ranges"}, "2M",
                                {{"LMS_TRACE", path}, {"NVTX_INJECTION64_PATH", support::preloaded_shim()}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == "ok\n");
    const lms::tool::Analysis all = lms::tool::analyse(*read(path));
    std::map<std::string, std::uint64_t> times;
    for (const auto& [name, use] : all.regions) times[name] = use.times;
    CHECK(times ==
          std::map<std::string, std::uint64_t>{{"backward", 3}, {"forward", 3}, {"run", 1}, {"whole", 1}});
    CHECK(all.regions.at("forward").bytes_in > 0);
    CHECK(all.regions.at("run").ns >= all.regions.at("forward").ns);
    CHECK(all.regions.at("forward").ns >= all.regions.at("backward").ns);
}

TEST_CASE("trace file: where children of fork alone use the GPU, ranges of the parent leave them the trace") {
    const std::string path = support::scratch_file("trace");
    const Run run = run_shimmed({"nvtx_ranges", "fork"}, "2M",
                                {{"LMS_TRACE", path}, {"NVTX_INJECTION64_PATH", support::preloaded_shim()}});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    const auto trace = read(path);
    CHECK(trace->ended);
    const lms::tool::Analysis all = lms::tool::analyse(*trace);
    CHECK(all.launches > 0);
    CHECK(all.regions.at("whole").times == 1);
    CHECK(all.regions.at("forward").times == 3);
    CHECK_FALSE(all.regions.contains("start"));  // over before there was a trace
}

TEST_CASE("trace file: without a trace NVTX is told that nobody listens") {
    const Run run =
        run_shimmed({"nvtx_ranges"}, "2M", {{"NVTX_INJECTION64_PATH", support::preloaded_shim()}});
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == "ok\n");
}

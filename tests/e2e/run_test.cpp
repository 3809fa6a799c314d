// What `lms run` says at the end, and what a program leaves behind however it ends.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "tests/e2e/programs.h"
#include "tests/support/scratch.h"

using namespace e2e;

namespace {

constexpr const char* kForever = " --bytes 600000 --steps 100000000";

// Runs apps of this build by `lms run`, whose live pages are in a folder of their own.
class Runs {
  public:
    Runs() {
        std::filesystem::permissions(scratch_.path(), std::filesystem::perms::owner_all);
        environment_ = {{"LD_LIBRARY_PATH", support::build_dir() + "/sim"},
                        {"SIMCUDA_GRANULARITY", "64K"},
                        {"SIMCUDA_LOCAL_THREADS", "64"},
                        {"LMS_THRESHOLD", "16K"},
                        {"XDG_RUNTIME_DIR", scratch_.path()}};
    }

    support::Result lms(const std::string& words, const std::string& memory = "4M") {
        environment_["SIMCUDA_MEMORY"] = memory;
        return shell("exec " + support::build_dir() + "/lms run " + words);
    }
    support::Result shell(const std::string& line) { return support::run({"sh", "-c", line}, environment_); }

    // What the line says while a program, whose number is $p, moves memory; once it has begun to.
    support::Result beside_a_program(const std::string& line) {
        const std::string lms = support::build_dir() + "/lms ";
        return shell("SIMCUDA_MEMORY=4M LD_PRELOAD=" + support::preloaded_shim() + " " + app("patterns") +
                     kForever + " >/dev/null 2>&1 & p=$!; until " + lms +
                     "top $p --json 2>/dev/null | grep -q '\"evictions\": [1-9]'; do sleep 0.1; done; " +
                     line + "; kill -KILL $p");
    }

    // As the page's file: the program's number and when it began.
    std::set<std::string> pages() const {
        std::set<std::string> names;
        const std::string folder = scratch_.path("lmsshim-" + std::to_string(geteuid()));
        if (!std::filesystem::exists(folder)) return names;
        for (const auto& file : std::filesystem::directory_iterator(folder))
            names.insert(file.path().filename());
        return names;
    }

    std::string app(const std::string& name) const { return support::build_dir() + "/apps/" + name; }
    const Scratch& scratch() const { return scratch_; }

  private:
    Scratch scratch_;
    Environment environment_;
};

}  // namespace

TEST_CASE("lms run: a program that moved memory: how much, and what would have been enough") {
    Runs runs;
    const support::Result run = runs.lms("-- " + runs.app("vector_add") + " 16");
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK_MESSAGE(run.err.find("\nlms: moved ") != std::string::npos, run.err);
    CHECK_MESSAGE(
        run.err.find("\nlms: buffers that moved most, numbered by allocation: ") != std::string::npos,
        run.err);
    CHECK_MESSAGE(run.err.find(" more nothing would have moved\n") != std::string::npos, run.err);
    CHECK(runs.pages().empty());

    // How fast the link is, with a trace and without.
    CHECK_MESSAGE(run.err.find("\nlms: GPU 0: while it copied, ") != std::string::npos, run.err);
    const support::Result traced = runs.lms("--trace " + support::scratch_file("speeds.lmstrace") + " -- " +
                                            runs.app("vector_add") + " 16");
    REQUIRE_MESSAGE(traced.status == 0, traced.err);
    CHECK_MESSAGE(traced.err.find("\nlms: GPU 0: while it copied, ") != std::string::npos, traced.err);

    // With what it says is lacking, on a GPU that much larger, nothing moves.
    const support::Result json =
        runs.lms("--summary=json --reserve 64K -- " + runs.app("vector_add") + " 16");
    const auto told = nlohmann::json::parse(json.err.substr(json.err.find('{')));
    REQUIRE(told["processes"].size() == 1);
    for (const char* way : {"in_bytes_per_s", "out_bytes_per_s"})
        CHECK(told["processes"][0]["gpus"][0][way] > 0);
    CHECK(told["sum"]["evictions"] > 0);
    CHECK(told["processes"][0]["buffers"].size() > 1);
    const std::uint64_t lacking = told["processes"][0]["gpus"][0]["most_beyond_bytes"];
    const support::Result enough =
        runs.lms("--reserve 64K -- " + runs.app("vector_add") + " 16", std::to_string((4 << 20) + lacking));
    CHECK_MESSAGE(enough.err.find("lms: GPU 0: all fitted: ") == 0, enough.err);
}

TEST_CASE("run: out of memory for what is below the threshold is told with what would help") {
    const std::string said = "do not move, for LMS_THRESHOLD is 2M: with a lower one they do";
    const Run whole = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_THRESHOLD", "2M"}});
    CHECK(whole.status != 0);
    CHECK_MESSAGE(whole.err.find(said) != std::string::npos, whole.err);
    const Run moved = run_shimmed({"vector_add", "16"}, "4M");
    CHECK(moved.status == 0);
    CHECK(moved.err.find(said) == std::string::npos);
}

TEST_CASE("lms run: a program that was killed leaves its counters and nothing else") {
    Runs runs;
    const std::string stats = runs.scratch().path("stats");
    const support::Result run =
        runs.lms("--stats " + stats + " -- timeout -s KILL 3 " + runs.app("patterns") + kForever);
    CHECK(run.status == 128 + 9);
    CHECK_MESSAGE(run.err.find("\nlms: moved ") != std::string::npos, run.err);
    const auto counters = nlohmann::json::parse(support::read_file(stats), nullptr, false);
    REQUIRE(counters.is_object());
    CHECK(counters["evictions"] > 0);
    CHECK(counters["gpus"].size() == 1);
    CHECK(runs.pages().empty());
}

TEST_CASE("live page: that of a program killed without lms run is kept by the next one") {
    Runs runs;
    const std::string stats = runs.scratch().path("stats");
    const std::string shim = std::filesystem::absolute(support::build_dir() + "/liblmsshim.so");
    runs.lms("--summary=off --stats " + stats + " -- timeout -s KILL 3 " + runs.app("patterns") + kForever);
    REQUIRE(runs.pages().size() == 1);
    // timeout kills itself as well, and may be gone before the program is.
    const std::string program = "/proc/" + *runs.pages().begin();
    while (std::filesystem::exists(program.substr(0, program.find('-'))))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto left = nlohmann::json::parse(support::read_file(stats), nullptr, false);
    REQUIRE(left.is_object());
    CHECK(left["evictions"] > 0);
    // The kernel may close a dead process's files later than it takes its number away. Until then they count
    // as somebody's.
    constexpr int kTries = 50;
    for (int tries = 0; tries < kTries && !runs.pages().empty(); ++tries)
        CHECK(runs.lms("--summary=off -- " + runs.app("vector_add") + " 1").status == 0);
    CHECK(runs.pages().empty());
    const auto counters = nlohmann::json::parse(support::read_file(stats), nullptr, false);
    REQUIRE(counters.is_object());
    CHECK(counters["evictions"] >= left["evictions"]);
}

TEST_CASE("lms run: each process of a program is told by itself") {
    Runs runs;
    const std::string app = runs.app("vector_add");
    const support::Result run = runs.lms("-- sh -c '" + app + " 16 && " + app + " 16'");
    std::size_t told = 0;
    for (std::size_t at = 0; (at = run.err.find("): moved ", at)) != std::string::npos; ++at) ++told;
    CHECK_MESSAGE(told == 2, run.err);
}

TEST_CASE("lms top: what a program does while it runs, as a table and as JSON") {
    Runs runs;
    const std::string lms = support::build_dir() + "/lms ";
    const support::Result text = runs.beside_a_program("echo $p; " + lms + "top");
    std::istringstream words(text.out);
    std::string number, line;
    std::getline(words, number);
    std::getline(words, line);
    CHECK_MESSAGE(line.find("PID PROGRAM        GPU   BUDGET ALLOCATED") != std::string::npos, text.out);
    std::string pid, gpu, budget, allocated, resident, on_host, in, out, waits, launches, limit, policy,
        program;
    words >> pid >> program >> gpu >> budget >> allocated >> resident >> on_host >> in >> out >> waits >>
        launches >> limit >> policy;
    CHECK(pid == number);
    CHECK(gpu == "0");
    CHECK(in.ends_with("/s"));
    CHECK(in != "0/s");
    CHECK(launches != "0/s");
    CHECK(limit == "none");
    CHECK(policy == "next-use");
    CHECK(program == "patterns");

    const auto json = nlohmann::json::parse(runs.beside_a_program(lms + "top $p --json").out, nullptr, false);
    REQUIRE(json.size() == 1);
    CHECK(json[0]["gpus"][0]["budget_bytes"] < 4 << 20);
    CHECK(json[0]["gpus"][0]["allocated_bytes"] > 4 << 20);
    // Its buffers are of one size, and all of them move.
    CHECK_MESSAGE(text.out.find("     PID GPU   BUFFER      SIZE        IN") != std::string::npos, text.out);
    REQUIRE(json[0]["buffers"].size() > 1);
    std::uint64_t moved_in = 0, moved_out = 0;  // nothing is in before it has been out
    for (const auto& buffer : json[0]["buffers"]) {
        CHECK(buffer["number"] <= json[0]["allocations"]);
        CHECK(buffer["bytes"] == json[0]["buffers"][0]["bytes"]);
        CHECK(buffer["frames"].empty());
        moved_in += buffer["bytes_in"].get<std::uint64_t>();
        moved_out += buffer["bytes_out"].get<std::uint64_t>();
    }
    CHECK(moved_in + moved_out > 0);
    CHECK(moved_in <= json[0]["bytes_in"]);
    CHECK(moved_out <= json[0]["bytes_out"]);
}

TEST_CASE("lms top: on a terminal it shows the table until q") {
    Runs runs;
    const support::Result shown = runs.beside_a_program("(sleep 2.5; printf q) | TERM=vt100 script -qec '" +
                                                        support::build_dir() + "/lms top' /dev/null");
    CHECK_MESSAGE(shown.out.find("lms top: 1 under the shim; q ends") != std::string::npos, shown.out);
    CHECK(shown.out.find("PROGRAM") != std::string::npos);
    CHECK(shown.out.find("patterns") != std::string::npos);
}

TEST_CASE("lms top: a process that does not run under the shim is named") {
    Runs runs;
    const support::Result none = runs.shell(support::build_dir() + "/lms top $$");
    CHECK(none.status == 1);
    CHECK_MESSAGE(none.err.ends_with(" of yours runs under the shim\n"), none.err);
    CHECK(runs.shell(support::build_dir() + "/lms top --json").out == "[]\n");
}

// What `lms run` says at the end, and what a program leaves behind however it ends.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/programs.h"
#include "tests/support/scratch.h"

using namespace e2e;

namespace {

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
        const std::string build = support::build_dir();
        return support::run({"sh", "-c", "exec " + build + "/lms run " + words}, environment_);
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

constexpr const char* kForever = " --bytes 600000 --steps 100000000";

}  // namespace

TEST_CASE("lms run: a program that moved memory: how much, and what would have been enough") {
    Runs runs;
    const support::Result run = runs.lms("-- " + runs.app("vector_add") + " 16");
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK_MESSAGE(run.err.find("\nlms: moved ") != std::string::npos, run.err);
    CHECK_MESSAGE(run.err.find(" more nothing would have moved\n") != std::string::npos, run.err);
    CHECK(runs.pages().empty());

    // With what it says is lacking, on a GPU that much larger, nothing moves.
    const support::Result json =
        runs.lms("--summary=json --reserve 64K -- " + runs.app("vector_add") + " 16");
    const auto told = nlohmann::json::parse(json.err.substr(json.err.find('{')));
    REQUIRE(told["processes"].size() == 1);
    CHECK(told["sum"]["evictions"] > 0);
    const std::uint64_t lacking = told["processes"][0]["gpus"][0]["most_beyond_bytes"];
    const support::Result enough =
        runs.lms("--reserve 64K -- " + runs.app("vector_add") + " 16", std::to_string((4 << 20) + lacking));
    CHECK_MESSAGE(enough.err.find("lms: GPU 0: all fitted: ") == 0, enough.err);
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
    CHECK(support::read_file(stats).empty());
    CHECK(runs.lms("--summary=off -- " + runs.app("vector_add") + " 1").status == 0);
    CHECK(runs.pages().empty());
    const auto counters = nlohmann::json::parse(support::read_file(stats), nullptr, false);
    REQUIRE(counters.is_object());
    CHECK(counters["evictions"] > 0);
}

TEST_CASE("lms run: each process of a program is told by itself") {
    Runs runs;
    const std::string app = runs.app("vector_add");
    const support::Result run = runs.lms("-- sh -c '" + app + " 16 && " + app + " 16'");
    std::size_t told = 0;
    for (std::size_t at = 0; (at = run.err.find("): moved ", at)) != std::string::npos; ++at) ++told;
    CHECK_MESSAGE(told == 2, run.err);
}

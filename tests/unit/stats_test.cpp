#include "shim/trace/live_page.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "shim/util/log.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

using nlohmann::json;
using namespace lms::trace;

TEST_CASE("counters: the JSON has each field under its name") {
    Counters counters;
    std::uint64_t value = 1ull << 40;
    for (const CounterField& field : counter_fields()) counters.*field.member = value++;
    const auto parsed = to_json(counters);
    CHECK(parsed.size() == counter_fields().size());
    CHECK(sizeof(Counters) == counter_fields().size() * sizeof(Counters::Counter));
    value = 1ull << 40;
    for (const CounterField& field : counter_fields()) CHECK(parsed.at(std::string(field.name)) == value++);
}

TEST_CASE("counters: docs/reference/counters.md tells the same of each") {
    std::ifstream file("docs/reference/counters.md");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::string table = "| Key | Meaning |\n| --- | --- |\n";
    for (const CounterField& field : counter_fields())
        table += "| `" + std::string(field.name) + "` | " + std::string(field.meaning) + " |\n";
    CAPTURE(table);
    CHECK(text.find(table + "\n") != text.npos);
}

TEST_CASE("counters: peaks only rise") {
    Counters counters;
    raise(counters.peak_host_bytes, 10);
    raise(counters.peak_host_bytes, 7);
    CHECK(counters.peak_host_bytes == 10);
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (std::uint64_t i = 0; i < 10000; ++i) {
                raise(counters.peak_host_bytes, i * 4 + thread);
                add(counters.launches);
                add(counters.bytes_in, 3);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(counters.peak_host_bytes == 39999);
    CHECK(counters.launches == 40000);
    CHECK(counters.bytes_in == 120000);
}

TEST_CASE("counters: written at exit by the process that asked, not by its children") {
    const Scratch scratch;
    const std::string file = scratch.path("stats");
    CHECK(support::in_child([&] {
              begin_counters(file);
              begin_counters(file + "-other");
              add(counters().launches, 5);
              if (support::in_child([] { exit(0); }) != 0) _exit(1);
              // As when they began.
              if (json::parse(scratch.get("stats"))["launches"] != 0) _exit(2);
              exit(0);
          }) == 0);
    CHECK(json::parse(scratch.get("stats"))["launches"] == 5);
}

TEST_CASE("counters: a file that cannot be written is told when they begin") {
    const Scratch scratch;
    CHECK(support::in_child([&] {
              lms::log::configure(lms::log::Level::Warn, scratch.path("log"));
              begin_counters(scratch.path("missing/stats"));
              exit(0);  // where it would be told again
          }) == 0);
    CHECK(scratch.get("log") ==
          "lms: LMS_STATS: cannot write " + scratch.path("missing/stats") + ": No such file or directory\n");
}

TEST_CASE("counters: the file is the one that the path meant when they began") {
    const Scratch scratch;
    const std::string folder = std::filesystem::relative(scratch.path());
    CHECK(support::in_child([&] {
              begin_counters(folder + "/stats-%p");
              std::filesystem::current_path(scratch.path());
              std::filesystem::rename("stats-" + std::to_string(getpid()), "stats");
              std::filesystem::create_symlink("stats", "stats-" + std::to_string(getpid()));
              std::filesystem::current_path("/");
              exit(0);
          }) == 0);
    CHECK(json::parse(scratch.get("stats")).size() == counter_fields().size() + 1);
}

TEST_CASE("counters: a pipe will do") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    CHECK(support::in_child([&] {
              dup2(ends[1], STDOUT_FILENO);
              begin_counters("/dev/stdout");
              exit(0);
          }) == 0);
    char text[4096] = {};
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    CHECK(json::parse(text).size() == counter_fields().size() + 1);
    close(ends[0]);
    close(ends[1]);
}

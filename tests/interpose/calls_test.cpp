// Calls through the shim's exports: the arguments arrive, the first call loads the driver, missing functions
// answer.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

using namespace drivers;

namespace {

// Eight integers and ten doubles: the last two of each travel on the stack.
using Call = int (*)(std::int64_t, double, std::int64_t, double, std::int64_t, double, std::int64_t, double,
                     std::int64_t, double, std::int64_t, double, std::int64_t, double, std::int64_t, double,
                     double, double);

// Functions of the fake driver that answer for themselves.
bool has_behaviour(const table::Row& row) {
    return row.symbol == "cuInit" || row.symbol == "cuDriverGetVersion" || row.base == "cuGetProcAddress";
}

void check_call(const table::Row& row, std::int64_t i, double d) {
    CAPTURE(row.symbol);
    const auto call = reinterpret_cast<Call>(shim_function(row.symbol));
    const int answer = call(i + 1, d + 1, i + 2, d + 2, i + 3, d + 3, i + 4, d + 4, i + 5, d + 5, i + 6,
                            d + 6, i + 7, d + 7, i + 8, d + 8, d + 9, d + 10);
    CHECK(answer == fake::kAnswerBase + (&row - std::begin(table::kRows)));
    for (int k = 0; k < fake::kIntegers; ++k) CHECK(record().integers[k] == i + k + 1);
    for (int k = 0; k < fake::kDoubles; ++k) CHECK(record().doubles[k] == d + k + 1);
}

}  // namespace

PROBE(arguments_arrive) {
    for (int round = 0; round < 2; ++round) {  // the first call of all goes through a stub, later ones do not
        std::int64_t i = 0x7ffffffffff00000 + round;
        double d = 1e9 + round;
        for (const table::Row& row : table::kRows) {
            const bool passed = row.action == table::Action::PASS || row.action == table::Action::ANY;
            if (passed && !has_behaviour(row)) check_call(row, i -= 16, d += 16);
        }
    }
}

// The stub of each row must keep the arguments: each round, another row's call is the one that loads the
// driver. The probe is told which by its environment.
PROBE(the_first_call_arrives) {
    const auto& row = table::kRows[std::stoul(std::getenv("FIRST_ROW"))];
    const auto call = reinterpret_cast<Call>(shim_function(row.symbol));
    const int answer = call(-1, 0.5, -2, 1.5, -3, 2.5, -4, 3.5, -5, 4.5, -6, 5.5, -7, 6.5, -8, 7.5, 8.5, 9.5);
    CHECK(answer == fake::kAnswerBase + std::stoi(std::getenv("FIRST_ROW")));
    for (int k = 0; k < fake::kIntegers; ++k) CHECK(record().integers[k] == -k - 1);
    for (int k = 0; k < fake::kDoubles; ++k) CHECK(record().doubles[k] == k + 0.5);
}

PROBE(threads_race_for_the_first_call) {
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    constexpr int kThreads = 8;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            int version = 0;
            const auto call = reinterpret_cast<int (*)(int*)>(shim_function("cuDriverGetVersion"));
            ++ready;
            while (ready < kThreads) {
            }
            if (call(&version) == kSuccess && version == 13050) ++right;
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(right == kThreads);
}

PROBE(functions_an_old_driver_lacks_answer) {
    for (const table::Row& row : table::kRows) {
        if (row.introduced <= 11040 || row.action != table::Action::PASS) continue;
        CAPTURE(row.symbol);
        const auto call = reinterpret_cast<int (*)()>(shim_function(row.symbol));
        CHECK(call() == kNotSupported);
        CHECK(call() == kNotSupported);
    }
    CHECK(record().calls == 0);
}

TEST_CASE("calls: calls to passed functions arrive with 18 mixed arguments intact") {
    // Some are named.
    const auto quiet = probe::with(probe::preloaded(), {{"LMS_LOG", "error"}});
    probe::run_probe("arguments_arrive", quiet).check();
}

TEST_CASE("calls: the call that loads the driver arrives like any other") {
    int tried = 0;
    for (std::size_t i = 0; i < std::size(table::kRows); i += 37) {
        const table::Row& row = table::kRows[i];
        if (row.action != table::Action::PASS || has_behaviour(row)) continue;
        ++tried;
        CAPTURE(row.symbol);
        const probe::Environment first{{"FIRST_ROW", std::to_string(i)}};
        probe::run_probe("the_first_call_arrives", probe::with(probe::preloaded(), first)).check();
    }
    CHECK(tried > 5);
}

TEST_CASE("calls: threads may race for the first call") {
    for (int i = 0; i < 10; ++i) {
        probe::run_probe("threads_race_for_the_first_call", probe::preloaded()).check();
    }
}

TEST_CASE(
    "peers: a function that the driver lacks is never called through null; it answers and is named once") {
    const probe::Result result =
        probe::run_probe("functions_an_old_driver_lacks_answer", probe::preloaded("old_driver"));
    INFO(result.out);
    CHECK(result.status == 0);
    for (const table::Row& row : table::kRows) {
        if (row.introduced <= 11040 || row.action != table::Action::PASS) continue;
        const std::string line =
            "lms: the installed driver has no " + std::string(row.symbol) + ": calls fail\n";
        const std::size_t first = result.err.find(line);
        CAPTURE(line);
        CHECK(first != std::string::npos);
        CHECK(result.err.find(line, first + 1) == std::string::npos);
    }
}

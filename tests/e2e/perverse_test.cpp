// Programs over drivers that do what real ones may do against this project's hopes (SIMCUDA_PERVERSE): every
// one ends with the bytes that it has without the shim, or, where nothing can be moved, is out of memory.
//
// One of each kind runs in every run of the tests; all of them, with all settings, by `make perverse-check`,
// of the drivers that DRIVERS names if it names any.
#include <doctest/doctest.h>

#include <stdlib.h>

#include <algorithm>
#include <sstream>

#include "tests/e2e/apps.h"
#include "tests/support/scratch.h"

using namespace e2e;

namespace {

struct Driver {
    std::string name;
    std::string perverse = name;
    bool moves = true;  // else the GPU stays as large as it is
    // A process apart alone finds out what it does, for that has a kernel, and may die.
    bool apart = false;
    double memory = 1;  // of what others are given: how much more
};
const Driver kDrivers[] = {
    {"host-create-crashes", "host-create-crashes", true, true},
    {"host-copies-fail"},
    {"host-sets-lost"},
    {"moves-lose", "moves-lose", false},
    {"copies-queue"},
    {"unmap-drains"},
    {"access-not-ready"},
    {"launches-overlap"},
    {"one-queue"},
    {"host-copies-early"},
    {"host-writes-lost", "host-writes-lost", true, true},
    {"host-atomics-lost", "host-atomics-lost", true, true},
    {"copies-block"},
    {"one-bus-address"},
    {"less-than-free", "less-than-free", true, false, 4. / 3},
    {"less-accessible", "less-accessible", true, false, 4. / 3},
    {"mixed-copies-fail", "mixed-copies-fail", true, true},
    {"mapped-copies-early", "mapped-copies-early", true, true},
    {"mappings-apart"},
    {"several",
     "host-sets-lost,copies-queue,unmap-drains,access-not-ready,launches-overlap,one-queue,host-copies-"
     "early"},
    {"all", "all", false, true},
};

std::vector<Driver> chosen_drivers() {
    const char* const names = getenv("DRIVERS");
    if (!names || !*names) return {std::begin(kDrivers), std::end(kDrivers)};
    std::vector<Driver> chosen;
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
        const auto* const driver = std::ranges::find(kDrivers, name, &Driver::name);
        REQUIRE_MESSAGE(driver != std::end(kDrivers), name, " is none of the drivers");
        chosen.push_back(*driver);
    }
    return chosen;
}

// Where moves are tried in a process apart first, where in the program alone, where memory on the host is
// pinned, and at the levels between which most differs.
const Environment kSettings[] = {
    {{"LMS_HOST_MAPPING", "auto"}}, {{"LMS_HOST_MAPPING", "on"}}, {{"SIMCUDA_HOST_VMM", "0"}},
    {{"LMS_SAFETY", "args"}},       {{"LMS_SAFETY", "strict"}},
};

// What a program is told that needs more than there is, in words of its own or of a library's.
bool is_out_of_memory(const Run& run) {
    const auto said = [&](const char* text) { return run.err.find(text) != run.err.npos; };
    return run.status != 0 && said("lms: out of memory: ") &&
           (said("cudaErrorMemoryAllocation") || said("bad_alloc"));
}

// Where it is without a cache of a run's own.
std::string kernel_cache() {
    const char* const cache = getenv("XDG_CACHE_HOME");
    if (cache) return std::string(cache) + "/simcuda";
    const char* const home = getenv("HOME");
    return std::string(home ? home : "") + "/.cache/simcuda";
}

void check(const App& app, const Driver& driver, Environment environment, const std::string& reference) {
    static const Scratch scratch;  // each driver's answers are kept apart
    environment.insert(app.environment.begin(), app.environment.end());
    environment["SIMCUDA_PERVERSE"] = driver.perverse;
    environment["XDG_CACHE_HOME"] = scratch.path(driver.name);
    environment["SIMCUDA_CACHE"] = kernel_cache();
    std::uint64_t evictions = 0;
    for (const double share : {0.5, 0.25}) {
        CAPTURE(share);
        const Run run = run_shimmed({app.name, std::to_string(app.mib)},
                                    memory_of(app, share * driver.memory), environment);
        if (!driver.moves && is_out_of_memory(run)) continue;
        CHECK_MESSAGE(run.status == 0, run.err);
        CHECK(run.out == reference);
        evictions += run.stats.at("evictions");
        if (app.name != "callbacks") CHECK(run.violations == 0);
    }
    // At a half threads whose turns do not overlap may fit.
    if (driver.moves) CHECK(evictions > 0);
}

void check_app(const App& app, const std::vector<Driver>& drivers) {
    CAPTURE(app.name);
    const std::string reference = reference_of(app);
    for (const Driver& driver : drivers) {
        CAPTURE(driver.name);
        for (const Environment& environment : kSettings) {
            const std::string name = environment.begin()->first;
            const std::string value = environment.begin()->second;
            CAPTURE(name);
            CAPTURE(value);
            if (driver.apart && value == "on") continue;
            check(app, driver, environment, reference);
        }
    }
}

}  // namespace

TEST_CASE("perverse: copies, graphs and streams are right over every driver, or out of memory") {
    for (const char* name : {"vector_add", "graph_memory"}) {
        const auto app = std::ranges::find(apps(), name, &App::name);
        CAPTURE(name);
        const std::string reference = reference_of(*app);
        for (const Driver& driver : kDrivers) {
            CAPTURE(driver.name);
            check(*app, driver, {{"LMS_HOST_MAPPING", driver.apart ? "auto" : "on"}}, reference);
        }
    }
}

TEST_CASE("perverse: every program over every driver" * doctest::skip()) {
    const std::vector<Driver> drivers = chosen_drivers();
    for (const App& app : apps()) {
        check_app(app, drivers);
        MESSAGE(app.name << " ran over " << drivers.size() << " drivers");
    }
}

// Programs with the guards of LMS_CHECK on: what they find, and that they find nothing where nothing is
// wrong.
#include <doctest/doctest.h>

#include <cstdio>
#include <set>
#include <sstream>
#include <string>

#include "tests/e2e/apps.h"

using namespace e2e;

namespace {

// What the guards said, line by line.
std::vector<std::string> verdict_of(const Run& run) {
    std::vector<std::string> lines;
    std::istringstream all(run.err);
    for (std::string line; std::getline(all, line);) {
        if (line.starts_with("lms: check: ")) lines.push_back(line);
    }
    return lines;
}

// One ends in an assertion of its own, which is named.
bool is_own_failure(const App& app, const std::string& line) {
    return app.name == "device_output" && (line.find(" insist(") != line.npos ||
                                           line.ends_with("the program failed, in the work named above"));
}

// How many chunks it had compared.
unsigned long check_app(const App& app, double share, const std::string& reference) {
    CAPTURE(share);
    Environment environment = app.environment;
    environment["LMS_CHECK"] = "1";
    const Run run = run_shimmed({app.name, std::to_string(app.mib)}, memory_of(app, share), environment);
    CAPTURE(run.err);
    CHECK(run.status == 0);
    CHECK(run.out == reference);
    CHECK(run.stats.at("evictions") > 0);
    unsigned long compared = 0;
    unsigned verdicts = 0;
    for (const std::string& line : verdict_of(run)) {
        if (is_own_failure(app, line)) continue;
        CHECK_MESSAGE(line.ends_with(" evicted chunks came back intact"), line);
        CHECK(std::sscanf(line.c_str(), "lms: check: %lu", &compared) == 1);
        ++verdicts;
    }
    CHECK(verdicts == 1);
    return compared;
}

}  // namespace

TEST_CASE("guards: they find nothing in any program that names what it uses") {
    for (const App& app : apps()) {
        CAPTURE(app.name);
        const std::string reference = reference_of(app);
        // Of some nothing that left comes back, but for what is foretold by chance: the host reads it where
        // it is.
        const std::set<std::string> stay{"symbols", "linked", "mipmaps", "nested", "device_streams"};
        const bool stays = stay.contains(app.name);
        const auto compared = check_app(app, 0.5, reference) + check_app(app, 0.25, reference);
        CHECK((compared > 0 || stays));
    }
}

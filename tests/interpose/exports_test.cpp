// What liblmsshim.so is to the loader: its exports, its name, and what it needs.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

namespace {

std::vector<std::string> lines(const std::vector<std::string>& command) {
    const probe::Result result = probe::run(command, {});
    INFO(result.err);
    REQUIRE(result.status == 0);
    std::vector<std::string> all;
    std::istringstream text(result.out);
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
}

// The bracketed values of a dynamic tag, such as NEEDED.
std::set<std::string> dynamic_values(const std::string& tag) {
    std::set<std::string> values;
    for (const std::string& line : lines({"readelf", "-dW", probe::built("liblmsshim.so")})) {
        const std::size_t open = line.find('[');
        if (line.find("(" + tag + ")") == std::string::npos || open == std::string::npos) continue;
        values.insert(line.substr(open + 1, line.find(']') - open - 1));
    }
    return values;
}

}  // namespace

TEST_CASE("exports: the shim exports every driver name, dlsym and its own calls, and nothing else") {
    std::set<std::string> exported;
    for (const std::string& line : lines({"nm", "-D", "--defined-only", probe::built("liblmsshim.so")})) {
        exported.insert(line.substr(line.rfind(' ') + 1));
    }
    for (const table::Row& row : table::kRows) {
        CAPTURE(row.symbol);
        CHECK(exported.erase(std::string(row.symbol)) == 1);
    }
    CHECK(exported.erase("dlsym") == 1);
    CHECK(exported.erase("InitializeInjectionNvtx2") == 1);
    for (const std::string& name : exported) {
        CAPTURE(name);
        CHECK(name.starts_with("lms_"));
    }
}

TEST_CASE("exports: the shim needs only glibc, and answers to the driver's name") {
    // Before glibc 2.34 three of these had what is in libc.so.6 now.
    const std::set<std::string> allowed{"libc.so.6",       "libm.so.6",  "ld-linux-x86-64.so.2",
                                        "libpthread.so.0", "libdl.so.2", "librt.so.1"};
    for (const std::string& library : dynamic_values("NEEDED")) {
        CAPTURE(library);
        CHECK(allowed.contains(library));
    }
    CHECK(dynamic_values("SONAME") == std::set<std::string>{"libcuda.so.1"});
}

// A hooked row whose function is missing, or a passed row that has one, fails to link; this shows that
// passing is a jump through memory (ff 25) and no more.
PROBE(passed_rows_are_trampolines) {
    constexpr std::array<unsigned char, 2> kJump{0xff, 0x25};
    for (const table::Row& row : table::kRows) {
        CAPTURE(row.symbol);
        const bool is_jump = std::memcmp(drivers::shim_function(row.symbol), kJump.data(), kJump.size()) == 0;
        CHECK(is_jump == (row.action == table::Action::PASS || row.action == table::Action::RETRY));
    }
}

TEST_CASE("exports: a passed row is one indirect jump and a hooked row is a function") {
    probe::run_probe("passed_rows_are_trampolines", probe::preloaded()).check();
}

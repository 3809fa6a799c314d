// Probes: code that a test runs in a process of its own, started with the shim preloaded or with any other
// environment.
//
//   PROBE(finds_the_hook) { CHECK(...); }
//   TEST_CASE("...") { run_probe("finds_the_hook", preloaded()).check(); }
//
// A probe is this same program started again; its failed CHECKs are printed and make it exit with 1. (Only
// CHECK and REQUIRE: doctest's FAIL does nothing outside a test case.)
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace probe {

using Environment = std::map<std::string, std::string>;

struct Result : support::Result {
    // Fails the running test unless the process succeeded and said nothing on stderr.
    void check() const;
};

// build/, and a file in it; absolute.
std::string built(const std::string& path = "");

// A fake driver's file: "driver" (13.0), "old_driver" (11.4), "new_driver" (14.0).
std::string fake_driver(const std::string& variant = "driver");

// The shim preloaded over a fake driver that the loader finds by itself.
Environment preloaded(const std::string& variant = "driver");

// Runs a program with this environment and nothing else but PATH.
Result run(const std::vector<std::string>& command, const Environment& environment);

// Runs a probe of this program.
Result run_probe(const std::string& name, const Environment& environment);

// `environment` with `changes` on top.
Environment with(Environment environment, const Environment& changes);

using Function = void (*)();
struct Registration {
    Registration(const char* name, Function function);
};

// Runs the probe of that name in this process; its exit status.
int run_here(const std::string& name);

}  // namespace probe

#define PROBE(name)                                                        \
    static void probe_##name();                                            \
    static const probe::Registration register_##name(#name, probe_##name); \
    static void probe_##name()

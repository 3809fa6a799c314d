// The same calls with the shim and without it, over the same driver: each is to give the same answer.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/entry/rig.h"

namespace rig {

// Has a body's answers with and without the shim compared.
inline void same_both_ways(const std::string& body, Environment environment = {}) {
    environment["LMS_LOG"] = "off";
    const std::string with = run(body, Driver::Simulated, environment).failures;
    environment["LD_PRELOAD"] = environment["ENTRY_SIMULATED"] =
        std::string(std::getenv("BUILD") ? std::getenv("BUILD") : "build") + "/sim/libcuda.so.1";
    const std::string without = run(body, Driver::Simulated, environment).failures;
    CHECK(without.size() > 100);
    CHECK(without.find("ended with status") == std::string::npos);
    const auto differ = std::mismatch(with.begin(), with.end(), without.begin(), without.end());
    const auto line = [](const std::string& text, std::ptrdiff_t at) {
        const std::size_t begin = at == 0 ? 0 : text.rfind('\n', static_cast<std::size_t>(at) - 1) + 1;
        return text.substr(begin, text.find('\n', static_cast<std::size_t>(at)) - begin);
    };
    const std::ptrdiff_t at = differ.first - with.begin();
    if (with != without) CHECK(line(with, at) == line(without, at));
}

// The same where, with the shim, there is more than the GPU may take, and evicted memory stays addressable or
// does not.
inline void same_under_pressure(const std::string& body) {
    for (const char* host_mapping : {"0", "1"}) {
        CAPTURE(host_mapping);
        same_both_ways(body,
                       {{"SIMCUDA_MEMORY", "64M"}, {"LMS_LIMIT", "4M"}, {"SIMCUDA_HOST_VMM", host_mapping}});
    }
}

// ---- inside a body

inline void tell(const std::string& what, CUresult answer) {
    std::printf("%s: %s\n", what.c_str(), error_text(answer).c_str());
    std::fflush(stdout);
}

#define TELL(what, name, ...) ::rig::tell(std::string(what) + " " #name, CU(name)(__VA_ARGS__))

}  // namespace rig

#include "tests/interpose/probe.h"

#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace probe {
namespace {

std::map<std::string, Function>& probes() {
    static std::map<std::string, Function> all;
    return all;
}

std::string own_path() {
    char path[PATH_MAX] = {};
    return readlink("/proc/self/exe", path, sizeof path - 1) > 0 ? path : "";
}

}  // namespace

void Result::check() const {
    INFO("stdout: " << out);
    INFO("stderr: " << err);
    CHECK(status == 0);
    CHECK(err == "");
}

std::string built(const std::string& path) {
    std::string folder = own_path();  // build/tests/interpose
    for (int i = 0; i < 2; ++i) folder.resize(folder.rfind('/'));
    return path.empty() ? folder : folder + "/" + path;
}

std::string fake_driver(const std::string& variant) {
    return built("interpose/" + variant + "/libcuda.so.1");
}

Environment preloaded(const std::string& variant) {
    return {{"LD_PRELOAD", built("liblmsshim.so")}, {"LD_LIBRARY_PATH", built("interpose/" + variant)}};
}

Environment with(Environment environment, const Environment& changes) {
    for (const auto& [name, value] : changes) environment[name] = value;
    return environment;
}

Result run(const std::vector<std::string>& command, const Environment& environment) {
    std::vector<std::string> whole{"env", "-i"};
    if (const char* path = std::getenv("PATH")) whole.push_back(std::string("PATH=") + path);
    for (const auto& [name, value] : environment) whole.push_back(name + "=" + value);
    whole.insert(whole.end(), command.begin(), command.end());
    return {support::run(whole)};
}

Result run_probe(const std::string& name, const Environment& environment) {
    return run({own_path(), "--probe", name}, environment);
}

Registration::Registration(const char* name, Function function) {
    probes().emplace(name, function);
}

int run_here(const std::string& name) {
    const auto found = probes().find(name);
    if (found == probes().end()) {
        std::cout << "no probe is called " << name << "\n";
        return 2;
    }
    static int failures = 0;
    doctest::Context context;
    context.setAsDefaultForAssertsOutOfTestCases();
    context.setAssertHandler([](const doctest::AssertData& assertion) {
        if (!assertion.m_failed) return;
        ++failures;
        std::cout << assertion.m_file << ":" << assertion.m_line << ": " << assertion.m_expr << " is "
                  << assertion.m_decomp << "\n";
    });
    found->second();
    return failures == 0 ? 0 : 1;
}

}  // namespace probe

#include "tests/interpose/probe.h"

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>

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

// A file without a name that takes a child's output.
class Capture {
  public:
    Capture() : file_(std::tmpfile(), std::fclose) {}
    int descriptor() const { return fileno(file_.get()); }
    std::string text() const {
        std::string text;
        char block[4096];
        std::rewind(file_.get());
        for (std::size_t n; (n = std::fread(block, 1, sizeof block, file_.get())) > 0;) text.append(block, n);
        return text;
    }

  private:
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

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
    const Capture out;
    const Capture err;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err.descriptor(), STDERR_FILENO);

    std::vector<std::string> variables;
    if (const char* path = std::getenv("PATH")) variables.push_back(std::string("PATH=") + path);
    for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
    const auto pointers = [](const std::vector<std::string>& strings) {
        std::vector<char*> list;
        for (const std::string& string : strings) list.push_back(const_cast<char*>(string.c_str()));
        list.push_back(nullptr);
        return list;
    };
    pid_t child = 0;
    Result result;
    const int problem = posix_spawnp(&child, command[0].c_str(), &actions, nullptr, pointers(command).data(),
                                     pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    if (problem != 0) return {.status = 127, .out = "", .err = "cannot run " + command[0]};
    int status = 0;
    waitpid(child, &status, 0);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.out = out.text();
    result.err = err.text();
    return result;
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

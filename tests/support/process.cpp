#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace support {

namespace {

struct Scratch {
    Scratch() {
        char name[] = "/tmp/lmsshim-test-XXXXXX";
        path = mkdtemp(name);
    }
    ~Scratch() {
        if (getpid() == owner) std::filesystem::remove_all(path);  // not at the end of a fork
    }
    const pid_t owner = getpid();
    std::string path;
};

}  // namespace

std::string build_dir() {
    const char* build = std::getenv("BUILD");
    return std::filesystem::absolute(build ? build : "build").string();
}

std::string preloaded_shim() {
    const char* runtime = std::getenv("SANITIZER_RUNTIME");
    return (runtime ? std::string(runtime) + ":" : "") + build_dir() + "/liblmsshim.so";
}

std::string scratch_file(const std::string& name) {
    static const Scratch scratch;
    static std::atomic<int> count{0};
    return scratch.path + "/" + std::to_string(count++) + "-" + name;
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

Result run(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
           int seconds) {
    const std::string out = scratch_file("out");
    const std::string err = scratch_file("err");
    const pid_t child = fork();
    if (child == 0) {
        for (const auto& [name, value] : environment) {
            value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
        }
        dup2(open("/dev/null", O_RDONLY), 0);
        dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), 1);
        dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), 2);
        std::vector<char*> arguments;
        for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
        arguments.push_back(nullptr);
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > deadline) kill(child, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out), read_file(err)};
}

}  // namespace support

#include "shim/util/ask_apart.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "shim/util/answer_cache.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

using lms::util::ask_apart;

TEST_CASE("ask apart: the first line, of whoever wrote one, however it ended") {
    CHECK(ask_apart({"/bin/sh", "-c", "echo one; echo two"}, {}) == "one");
    CHECK(ask_apart({"/bin/sh", "-c", "echo one; kill -SEGV $$"}, {}) == "one");
    CHECK(ask_apart({"/bin/sh", "-c", "kill -SEGV $$"}, {}) == "");
    CHECK(ask_apart({"/bin/sh", "-c", "printf cut"}, {}) == "");
    CHECK(ask_apart({"/no/program"}, {}) == std::nullopt);
}

TEST_CASE("ask apart: who does not answer in time is ended, and has not been refused") {
    CHECK(ask_apart({"/bin/sh", "-c", "exec sleep 1000"}, {}, std::chrono::milliseconds(50)) ==
          "no answer in time");
}

namespace {

std::atomic<int> ended{0};
void count_child(int) {
    ++ended;
}

// The state in which the kernel has the process: a letter, or nothing.
char state_of(const std::string& process) {
    std::ifstream file("/proc/" + process + "/stat");
    std::string number, name;
    char state = 0;
    file >> number >> name >> state;
    return state;
}

}  // namespace

TEST_CASE("ask apart: the process is none of the host's children, which hears nothing of it") {
    struct sigaction counts {
    }, before{};
    counts.sa_handler = count_child;
    sigaction(SIGCHLD, &counts, &before);
    std::atomic<bool> answered{false};
    std::optional<std::string> said;
    std::thread asking([&] {
        said = ask_apart({"/bin/sh", "-c", "sleep 0.1; echo one"}, {});
        answered = true;
    });
    bool has_children = false;
    while (!answered) has_children |= waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD;
    asking.join();
    CHECK(said == "one");
    CHECK_FALSE(has_children);
    CHECK(waitpid(-1, nullptr, WNOHANG | __WALL) == -1);
    CHECK(ended == 0);
    sigaction(SIGCHLD, &before, nullptr);
}

TEST_CASE("ask apart: what is sent to the host's group and terminal does not reach it") {
    const auto session =
        ask_apart({"/bin/sh", "-c", "read -r _ _ _ _ _ session _ < /proc/self/stat; echo $session"}, {});
    REQUIRE(session);
    CHECK(std::stoi(*session) > 0);
    CHECK(*session != std::to_string(getsid(0)));
}

TEST_CASE("ask apart: who has said a line is ended") {
    const auto said = ask_apart({"/bin/sh", "-c", "echo $$; exec sleep 1000"}, {});
    REQUIRE(said);
    while (state_of(*said) != 0 && state_of(*said) != 'Z') std::this_thread::yield();
}

// What it has of a GPU is free then.
TEST_CASE("ask apart: who has said a line has the time to end by itself") {
    const Scratch scratch;
    const std::string path = scratch.path("over");
    CHECK(ask_apart({"/bin/sh", "-c", "echo one; sleep 0.2; : >" + path}, {}) == "one");
    CHECK(std::filesystem::exists(path));
}

TEST_CASE("ask apart: the environment, less what loads or sets the shim") {
    setenv("LMS_LIMIT", "5", 1);
    setenv("LD_AUDIT", "", 1);
    setenv("CUDA_INJECTION64_PATH", "/profiler.so", 1);
    setenv("NVTX_INJECTION64_PATH", "/profiler.so", 1);
    setenv("ASK_APART", "kept", 1);
    CHECK(ask_apart({"/bin/sh", "-c",
                     "echo $LMS_LIMIT.$ASK_APART.$LMS_DRIVER.${LD_AUDIT-none}.$CUDA_INJECTION64_PATH"
                     "$NVTX_INJECTION64_PATH"},
                    {{"LMS_DRIVER", "/d.so"}}) == ".kept./d.so.none.");
    unsetenv("LMS_LIMIT");
    unsetenv("LD_AUDIT");
    unsetenv("CUDA_INJECTION64_PATH");
    unsetenv("NVTX_INJECTION64_PATH");
    unsetenv("ASK_APART");
}

TEST_CASE("answers: kept by their keys, and not believed where others could have written them") {
    const Scratch scratch;
    setenv("XDG_CACHE_HOME", scratch.path().c_str(), 1);
    using namespace lms::util;
    CHECK(cached_answer("kind", "key") == "");
    keep_answer("kind", "key", "one");
    CHECK(cached_answer("kind", "key") == "one");
    CHECK(cached_answer("kind", "another") == "");
    keep_answer("kind", "key", "two");
    CHECK(cached_answer("kind", "key") == "two");
    for (const auto& file : std::filesystem::directory_iterator(scratch.path() + "/lmsshim")) {
        const auto written = std::filesystem::last_write_time(file);
        std::filesystem::last_write_time(file, written - std::chrono::hours(6 * 24));
        CHECK(cached_answer("kind", "key") == "two");
        std::filesystem::last_write_time(file, written - std::chrono::hours(8 * 24));
        CHECK(cached_answer("kind", "key") == "");
        std::filesystem::last_write_time(file, written);
        CHECK(::chmod(file.path().c_str(), 0620) == 0);
        CHECK(cached_answer("kind", "key") == "");
        CHECK(::chmod(file.path().c_str(), 0600) == 0);
        const std::string moved = scratch.path() + "/elsewhere";
        std::filesystem::rename(file.path(), moved);
        std::filesystem::create_symlink(moved, file.path());
        CHECK(cached_answer("kind", "key") == "");
    }
    unsetenv("XDG_CACHE_HOME");
}

TEST_CASE("answers: one that may not be written is not kept, and no signal ends the program") {
    const Scratch scratch;
    setenv("XDG_CACHE_HOME", scratch.path().c_str(), 1);
    using namespace lms::util;
    const int status = support::in_child([] {
        const rlimit none{0, 0};
        if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
        keep_answer("kind", "key", "one");
        return cached_answer("kind", "key").empty() ? 0 : 2;
    });
    unsetenv("XDG_CACHE_HOME");
    CHECK(status == 0);
    CHECK(std::filesystem::is_empty(scratch.path() + "/lmsshim"));
}

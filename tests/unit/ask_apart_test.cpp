#include "shim/util/ask_apart.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

#include "shim/util/answer_cache.h"
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

TEST_CASE("ask apart: the environment, less what loads or sets the shim") {
    setenv("LMS_LIMIT", "5", 1);
    setenv("LD_AUDIT", "", 1);
    setenv("ASK_APART", "kept", 1);
    CHECK(ask_apart({"/bin/sh", "-c", "echo $LMS_LIMIT.$ASK_APART.$LMS_DRIVER.${LD_AUDIT-none}"},
                    {{"LMS_DRIVER", "/d.so"}}) == ".kept./d.so.none");
    unsetenv("LMS_LIMIT");
    unsetenv("LD_AUDIT");
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

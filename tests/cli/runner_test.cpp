// tests/run.py counts right whatever a test program does. It runs here in a copy of the repository's shape,
// over programs that are scripts.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/support/process.h"
#include "tests/support/scratch.h"

namespace {

namespace fs = std::filesystem;

class Repository {
  public:
    Repository() {
        fs::create_directories(scratch_.path("tests"));
        fs::copy_file("tests/run.py", scratch_.path("tests/run.py"));
    }

    // A folder of tests whose program is `script`.
    void program(const std::string& name, const std::string& script) {
        scratch_.put("tests/" + name + "/" + name + "_test.cpp", "");
        scratch_.put("build/tests/" + name, "#!/bin/sh\n" + script + "\n");
        fs::permissions(scratch_.path("build/tests/" + name), fs::perms::owner_all);
    }

    void file(const std::string& name, const std::string& content) { scratch_.put(name, content); }

    support::Result run(const std::string& variables = "") {
        return support::run(
            {"sh", "-c", "unset BUILD; " + variables + " exec python3 -B " + scratch_.path("tests/run.py")});
    }

  private:
    Scratch scratch_;
};

// A program as doctest ends one.
std::string cases(int passed, int failed, const std::string& ending) {
    const std::string all = std::to_string(passed + failed);
    return "echo '[doctest] test cases: " + all + " | " + std::to_string(passed) + " passed | " +
           std::to_string(failed) +
           " failed | 0 skipped'\necho '[doctest] assertions: 90 | 90 passed | 0 failed |'\n" + ending;
}

void check(Repository& repository, const std::string& sum, int status) {
    const support::Result result = repository.run();
    CHECK_MESSAGE(result.out.ends_with("\n" + sum + "\n"), result.out, result.err);
    CHECK(result.status == status);
}

}  // namespace

TEST_CASE("runner: adds up programs and scripts") {
    Repository repository;
    repository.program("one", cases(3, 0, "exit 0"));
    repository.program("two", cases(40, 0, "exit 0"));
    repository.file("tests/two/check.sh", "exit 0");
    check(repository, "44 passed, 0 failed", 0);
}

TEST_CASE("runner: failed cases are counted and shown") {
    Repository repository;
    repository.program("one", cases(3, 0, "exit 0"));
    repository.program("two", cases(5, 2, "echo the reason >&2; exit 1"));
    repository.file("tests/two/check.sh", "echo script says; exit 3");
    const support::Result result = repository.run();
    CHECK(result.out.find("the reason\n") != std::string::npos);
    CHECK(result.out.find("script says\n") != std::string::npos);
    check(repository, "8 passed, 3 failed", 1);
}

TEST_CASE("runner: the cases of a large folder run in slices, each of which counts its own") {
    Repository repository;
    // doctest counts the cases of other slices as passed.
    const std::string slice = R"(case "$*" in
*--count*) echo '[doctest] unskipped test cases passing the current filters: 90'; exit 0;;
*--first=41*--last=80*) echo '[doctest] test cases: 90 | 88 passed | 2 failed | 0 skipped'; exit 1;;
*--first=1\ *--last=40*|*--first=81*--last=90*) echo '[doctest] test cases: 90 | 90 passed | 0 failed | 0 skipped';;
*) exit 1;;
esac)";
    repository.program("one", slice);
    check(repository, "88 passed, 2 failed", 1);
}

TEST_CASE("runner: a program that dies, says nothing, is missing or ends badly is a failure") {
    for (const char* ending : {"kill -SEGV $$", "exit 1"}) {
        Repository after_passing;
        after_passing.program("one", cases(3, 0, ending));
        check(after_passing, "3 passed, 1 failed", 1);
        Repository before_summary;
        before_summary.program("one", ending);
        check(before_summary, "0 passed, 1 failed", 1);
    }
    Repository silent;
    silent.program("one", "exit 0");
    check(silent, "0 passed, 1 failed", 1);
    Repository empty;
    empty.program("one", cases(0, 0, "exit 0"));
    check(empty, "0 passed, 1 failed", 1);
    Repository missing;
    missing.file("tests/one/one_test.cpp", "");
    check(missing, "0 passed, 1 failed", 1);
}

TEST_CASE("runner: a script that cannot be run here says why and counts as neither") {
    Repository repository;
    repository.program("one", cases(3, 0, "exit 0"));
    repository.file("tests/one/check.sh", "echo noise; echo no network; exit 77");
    const support::Result result = repository.run();
    CHECK(result.out.find("tests/one/check.sh: not run: no network\n") != std::string::npos);
    check(repository, "3 passed, 0 failed", 0);
}

TEST_CASE("runner: no tests is a failure") {
    Repository repository;
    const support::Result result = repository.run();
    CHECK(result.out == "0 passed, 0 failed\n");
    CHECK(result.status == 1);
}

TEST_CASE("runner: programs from a package index are not run where none answers") {
    Scratch build;
    const support::Result result =
        support::run({"sh", "tests/third_party/quick.sh"}, {{"BUILD", build.path()},
                                                            {"PIP_CONFIG_FILE", "/dev/null"},
                                                            {"PIP_FIND_LINKS", ""},
                                                            {"PIP_INDEX_URL", "http://127.0.0.1:9/simple"}});
    CHECK(result.status == 77);
    CHECK(result.out == "no package index answers, to install tvm iree drjit from\n");
}

TEST_CASE("runner: programs start with none of the caller's settings, and know the build folder") {
    Repository repository;
    repository.program(
        "one", cases(1, 0, R"([ -z "$LMS_FRAC$SIMCUDA_MEMORY$LD_LIBRARY_PATH" ] && [ "$BUILD" = build ])"));
    const support::Result result =
        repository.run("export LMS_FRAC=0.1 SIMCUDA_MEMORY=1M LD_LIBRARY_PATH=/nowhere;");
    CHECK_MESSAGE(result.status == 0, result.out);
}

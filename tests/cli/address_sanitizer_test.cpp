// A program that is compiled with AddressSanitizer, whose runtime wants to be preloaded first.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/support/process.h"
#include "tests/support/scratch.h"

TEST_CASE(
    "AddressSanitizer: a program of its own starts if its runtime is preloaded before the shim, else not") {
    const Scratch scratch;
    scratch.put("program.c", "int main(void) { return 4; }\n");
    const std::string program = scratch.path("program");
    const auto shell = [](const std::string& line) { return support::run({"sh", "-c", line}); };
    REQUIRE(shell("gcc -fsanitize=address -o " + program + " " + program + ".c").status == 0);
    const std::string shim = std::filesystem::canonical("build/liblmsshim.so");

    const support::Result alone = shell("LD_PRELOAD=" + shim + " " + program);
    CHECK(alone.status != 4);
    CHECK(alone.err.find("ASan runtime does not come first") != std::string::npos);
    // As docs/compatibility.md has it.
    const support::Result behind =
        shell("LD_PRELOAD=\"$(gcc -print-file-name=libasan.so) " + shim + "\" " + program);
    CHECK_MESSAGE(behind.status == 4, behind.err);
}

// The tests of interposition; `--probe NAME` runs one probe instead (probe.h).
#include <doctest/doctest.h>

#include <cstring>

#include "tests/interpose/probe.h"

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--probe") == 0) return probe::run_here(argv[2]);
    return doctest::Context(argc, argv).run();
}

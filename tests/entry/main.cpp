#include <cstring>

#include "tests/entry/rig.h"

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--body") == 0) return rig::run_here(argv[2]);
    return doctest::Context(argc, argv).run();
}

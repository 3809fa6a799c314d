#include <doctest/doctest.h>
#include <sys/resource.h>

int main(int count, char** arguments) {
    // An allocation that an input has made wild fails.
    constexpr rlimit kMemory = {512 << 20, 512 << 20};
    setrlimit(RLIMIT_AS, &kMemory);
    return doctest::Context(count, arguments).run();
}

// The main function of test programs that have none of their own.
#include <doctest/doctest.h>

int main(int count, char** arguments) {
    return doctest::Context(count, arguments).run();
}

// In the place of libpython, for programs that are linked with one: prints what a framework would find.
#include <cstdio>
#include <cstdlib>

static int show() {
    const char* const allocator = std::getenv("XLA_PYTHON_CLIENT_ALLOCATOR");
    std::puts(allocator == nullptr ? "not set" : allocator);
    return 0;
}

extern "C" {
int Py_BytesMain(int, char**) {
    return show();
}
int PyRun_SimpleString(const char*) {
    return show();
}
}

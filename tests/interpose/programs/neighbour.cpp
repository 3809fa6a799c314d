// A library that looks up its own function in the libraries after it, as wrappers and OpenMP runtimes do. It
// is built under two names; NEIGHBOUR is the name.
#include <dlfcn.h>

extern "C" const char* neighbour() {
    return NEIGHBOUR;
}

// What the library after this one calls itself; empty if there is none.
extern "C" const char* next_neighbour() {
    const auto next = reinterpret_cast<const char* (*)()>(dlsym(RTLD_NEXT, "neighbour"));
    return next != nullptr ? next() : "";
}

extern "C" const char* first_neighbour() {
    const auto first = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "neighbour"));
    return first != nullptr ? first() : "";
}

// The start of a program that uses cuBLASLt: loads it and NVIDIA's runtime, and lets both look up the
// driver's functions. On a driver that is not NVIDIA's their first calls end there. Ends with 1 if a library
// is missing.
#include <dlfcn.h>

#include <cstdio>

static bool first_call(const char* library, const char* name, void* argument) {
    void* const handle = dlopen(library, RTLD_NOW);
    void* const function = handle ? dlsym(handle, name) : nullptr;
    if (!function) {
        std::fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    reinterpret_cast<int (*)(void*)>(function)(argument);
    return true;
}

int main() {
    void* handle = nullptr;
    return first_call("libcublasLt.so.13", "cublasLtCreate", &handle) &&
                   first_call("libcudart.so.13", "cudaFree", nullptr)
               ? 0
               : 1;
}

// What programs linked here begin with. Since glibc 2.34 the C library runs a program's constructors; before,
// the program had code that did, which crt1.o has no more. A constructor runs once with either, for the later
// one then runs what it is given.
#include <cstddef>

extern "C" {

using Function = void(int, char**, char**);
using Main = int(int, char**, char**);

extern Function* const __preinit_array_start[] __attribute__((visibility("hidden")));
extern Function* const __preinit_array_end[] __attribute__((visibility("hidden")));
extern Function* const __init_array_start[] __attribute__((visibility("hidden")));
extern Function* const __init_array_end[] __attribute__((visibility("hidden")));

int __real___libc_start_main(Main* main, int count, char** words, Function* construct, void (*)(), void (*)(),
                             void*);

static void construct(int count, char** words, char** environment) {
    for (Function* const* each = __preinit_array_start; each != __preinit_array_end; ++each)
        (*each)(count, words, environment);
    for (Function* const* each = __init_array_start; each != __init_array_end; ++each)
        (*each)(count, words, environment);
}

int __wrap___libc_start_main(Main* main, int count, char** words, Function*, void (*destroy)(),
                             void (*unload)(), void* stack) {
    return __real___libc_start_main(main, count, words, construct, destroy, unload, stack);
}

}  // extern "C"

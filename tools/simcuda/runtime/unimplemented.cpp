// The functions that unimplemented.def lists. No CUDA header is included: those that declare some of these
// need headers of other libraries.
#include <atomic>

#include "tools/simcuda/runtime/unimplemented.h"

#define RT_LACKS(name)                                                              \
    extern "C" __attribute__((visibility("default"))) int name() {                  \
        static std::atomic<bool> named{false};                                      \
        return simcuda::runtime::answer_unimplemented(#name, named.exchange(true)); \
    }
#include "tools/simcuda/runtime/unimplemented.def"

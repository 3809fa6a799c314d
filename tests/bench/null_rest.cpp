// Every other call of the driver whose calls do nothing. Without cuda.h, so that no signature is in the way.
#define LMS_ENTRY(symbol, base, introduced, stream, action) \
    extern "C" __attribute__((weak)) int symbol() {         \
        return 0;                                           \
    }
#include "shim/entry_points.def"

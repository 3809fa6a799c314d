// In the place of cuDNN, for JAX asks which one there is before it compiles anything. It computes nothing, and is for
// these programs alone.
#include <stddef.h>

static int handle;

size_t cudnnGetVersion(void) { return 91200; }
int cudnnGetProperty(int part, int *out) {
    static const int version[] = {9, 12, 0};
    *out = version[part];
    return 0;
}
int cudnnCreate(void **out) {
    *out = &handle;
    return 0;
}
int cudnnDestroy(void *given) { return given != &handle; }

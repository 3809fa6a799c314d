#include "tests/unit/kernels/layouts.h"

extern "C" __global__ void nothing() {}

extern "C" __global__ void mixed(int* out, char shift, Aligned aligned, Odd odd, short narrow,
                                 Pointers pointers, long long wide, bool last) {
    *out = shift + static_cast<int>(aligned.numbers[1]) + odd.bytes[2] + narrow +
           static_cast<int>(*pointers.rows[0]) + static_cast<int>(wide) + last;
}

extern "C" __global__ void large(int index, __grid_constant__ const Large parameter, int* out) {
    *out = parameter.bytes[index];
}

extern "C" __global__ void many(char a, short b, int c, char d, long long e, char f, int g, short h, int* i,
                                char j, int* k, char l) {
    *i = *k + a + b + c + d + static_cast<int>(e) + f + g + h + j + l;
}

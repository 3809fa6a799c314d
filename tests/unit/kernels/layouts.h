// The parameters of the kernels of layouts.cu, each list as the members of a struct too: their places are the
// same.
#pragma once

struct Odd {
    char bytes[3];
};
struct Aligned {
    char head;
    double numbers[3];
};
struct Pointers {
    unsigned count;
    float* rows[5];
};
struct Large {
    char bytes[20000];  // beyond what the first form of entry holds
};

struct MixedBlock {
    int* out;
    char shift;
    Aligned aligned;
    Odd odd;
    short narrow;
    Pointers pointers;
    long long wide;
    bool last;
};
struct LargeBlock {
    int index;
    Large large;
    int* out;
};

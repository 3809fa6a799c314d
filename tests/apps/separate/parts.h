// What the two parts of the program share: device code and variables of one, used by the kernels of the
// other.
#pragma once

struct Step {
    unsigned factor, offset;
};

// Defined in functions.cu.
extern __device__ unsigned calls;
extern __constant__ Step steps[4];
__device__ unsigned applied(unsigned value, unsigned step);
using Function = unsigned (*)(unsigned, unsigned);
extern __device__ Function chosen;

// Sets the steps, from the other part of the host's code.
void set_steps(const Step* values);
// Every value with one more call counted, by a kernel of the other part.
void launch_count(const unsigned* in, unsigned n);

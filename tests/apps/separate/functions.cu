// The part that defines.
#include "tests/apps/check.h"
#include "tests/apps/separate/parts.h"

__device__ unsigned calls;
__constant__ Step steps[4];

__device__ unsigned applied(unsigned value, unsigned step) {
    return value * steps[step].factor + steps[step].offset;
}

__device__ Function chosen = applied;

// Of the same name in both parts, and not the same.
static __device__ unsigned weight = 1;

static __global__ void count(const unsigned* in, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] & 1) atomicAdd(&calls, weight);
}

void set_steps(const Step* values) {
    CHECK(cudaMemcpyToSymbol(steps, values, sizeof(steps)));
}

void launch_count(const unsigned* in, unsigned n) {
    count<<<blocks_for(n), 256>>>(in, n);
    CHECK_LAUNCH();
}

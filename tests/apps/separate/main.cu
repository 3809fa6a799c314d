// Separate compilation: kernels that call functions and use variables of another file, directly and by
// pointer.
#include "tests/apps/batches.h"
#include "tests/apps/separate/parts.h"

static __device__ unsigned weight = 1000;

__global__ void work(const unsigned* in, unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = applied(in[i], i % 4) + chosen(in[i], (i + 1) % 4) + weight;
}

int main(int argc, char** argv) {
    const Step steps[4] = {{3, 1}, {5, 7}, {11, 13}, {17, 19}};
    set_steps(steps);
    unsigned odd = 0;
    over_batches<unsigned, unsigned>(
        bytes_to_use(argc, argv, 4), "linked", [](std::size_t i) { return noise(i); },
        [](const unsigned* in, unsigned* out, unsigned n) {
            work<<<blocks_for(n), 256>>>(in, out, n);
            CHECK_LAUNCH();
            launch_count(in, n);
        },
        [&](const std::vector<unsigned>& in) {
            std::vector<unsigned> out(in.size());
            for (std::size_t i = 0; i < in.size(); ++i) {
                const Step a = steps[i % 4], b = steps[(i + 1) % 4];
                out[i] = in[i] * a.factor + a.offset + in[i] * b.factor + b.offset + 1000;
                odd += in[i] & 1;
            }
            return out;
        });
    unsigned counted = 0;
    CHECK(cudaMemcpyFromSymbol(&counted, calls, sizeof(counted)));
    CHECK_EQUAL(odd, counted);
    return succeed();
}

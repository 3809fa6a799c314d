// CUDA's mathematical functions against the host's, within the errors that its programming guide documents,
// and integers of 128 bits.
#include <cmath>

#include "check.h"

// Name, and largest documented errors in units in the last place, double and float.
// clang-format off
#define FUNCTIONS(F) \
    F(sin, 2, 2)   F(cos, 2, 2)   F(tan, 2, 4)   F(exp, 1, 2)   F(exp2, 1, 2)  F(expm1, 1, 1)  F(log, 1, 1) \
    F(log2, 1, 1)  F(log10, 1, 2) F(log1p, 1, 1) F(cbrt, 1, 1)  F(sqrt, 0, 0)  F(sinh, 2, 3)   F(cosh, 1, 2) \
    F(tanh, 1, 2)  F(asinh, 3, 3) F(acosh, 3, 4) F(atanh, 2, 3) F(asin, 2, 2)  F(acos, 2, 2)   F(atan, 2, 2) \
    F(erf, 2, 2)   F(erfc, 5, 4)  F(tgamma, 10, 5) F(rint, 0, 0) F(floor, 0, 0) F(logb, 0, 0)
// clang-format on

#define WRAPPER(name, ulps, float_ulps)                       \
    __host__ __device__ inline float single_##name(float x) { \
        return name##f(x);                                    \
    }
FUNCTIONS(WRAPPER)

__host__ __device__ inline double argument(std::size_t i) {
    const double u = noise(i) / 4294967296.0 - 0.5;
    // Small, large and in between; exact as a float, for both kinds are given the same.
    return static_cast<float>(i % 3 == 0   ? 4 * u
                              : i % 3 == 1 ? 100 * u
                                           : ldexp(u, static_cast<int>(noise(i, 1) % 40) - 20));
}

#define KERNEL(name, ulps, float_ulps)                                       \
    __global__ void run_##name(double* values, float* singles, unsigned n) { \
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;            \
        if (i >= n) return;                                                  \
        values[i] = name(argument(i));                                       \
        singles[i] = single_##name(static_cast<float>(argument(i)));         \
    }
FUNCTIONS(KERNEL)

// Infinities and NaN must be where the host has them. The host's own error comes on top.
template <class T>
bool close(T found, T wanted, double ulps) {
    if (found == wanted || (std::isnan(found) && std::isnan(wanted))) return true;
    if (!std::isfinite(found) || !std::isfinite(wanted)) return false;
    const double ulp =
        static_cast<double>(std::nextafter(std::fabs(wanted), static_cast<T>(INFINITY)) - std::fabs(wanted));
    return std::fabs(static_cast<double>(found) - static_cast<double>(wanted)) <= (ulps + 1) * ulp;
}

__host__ __device__ inline __int128 wide(std::size_t i) {
    const auto word = [i](unsigned seed) { return static_cast<unsigned __int128>(noise(i, seed)); };
    const unsigned __int128 all = word(2) << 96 | word(3) << 64 | word(4) << 32 | word(5);
    return static_cast<__int128>(all) >> noise(i, 6) % 120;
}

__host__ __device__ inline __int128 combined(std::size_t i) {
    const __int128 a = wide(2 * i), b = wide(2 * i + 1);
    switch (i % 6) {
        case 0:
            return b == 0 ? a : a / b;
        case 1:
            return b == 0 ? a : a % b;
        case 2:
            return a * b;
        case 3:
            return (a >> (i % 128)) - b;
        case 4:
            return static_cast<__int128>(static_cast<unsigned __int128>(a) /
                                         (static_cast<unsigned __int128>(b) | 1));
        default:
            return (a << (i % 128)) + (a < b ? b : -a);
    }
}

__global__ void combine(__int128* values, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = combined(i);
}

int main(int argc, char** argv) {
    // Doubles and floats of one function after another, as many as there is memory for.
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    const unsigned n = 16384;
    const std::size_t buffers = std::max<std::size_t>(bytes / (n * 32), 1);
    std::vector<double*> values(buffers);
    std::vector<float*> singles(buffers);
    for (std::size_t b = 0; b < buffers; ++b) {
        CHECK(cudaMalloc(&values[b], n * 16));
        CHECK(cudaMalloc(&singles[b], n * 16));
    }
    std::vector<double> found(n);
    std::vector<float> found_singles(n);
    std::size_t b = 0;
#define RUN(name, ulps, float_ulps)                                                                 \
    b = (b + 1) % buffers;                                                                          \
    run_##name<<<blocks_for(n), 256>>>(values[b], singles[b], n);                                   \
    CHECK_LAUNCH();                                                                                 \
    CHECK(cudaMemcpy(found.data(), values[b], n * sizeof(double), cudaMemcpyDeviceToHost));         \
    CHECK(cudaMemcpy(found_singles.data(), singles[b], n * sizeof(float), cudaMemcpyDeviceToHost)); \
    for (unsigned i = 0; i < n; ++i) {                                                              \
        const double x = argument(i), y = name(x);                                                  \
        const float z = single_##name(static_cast<float>(x));                                       \
        if (!close(found[i], y, ulps)) FAIL(#name "(%.17g) is %.17g, not %.17g", x, found[i], y);   \
        if (!close(found_singles[i], z, float_ulps))                                                \
            FAIL(#name "f(%.9g) is %.9g, not %.9g", x, found_singles[i], z);                        \
    }
    FUNCTIONS(RUN)

    std::vector<__int128> integers(n);
    for (b = 0; b < buffers; ++b) {
        auto* wides = reinterpret_cast<__int128*>(values[b]);
        combine<<<blocks_for(n), 256>>>(wides, n);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(integers.data(), wides, n * sizeof(__int128), cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < n; ++i)
            if (integers[i] != combined(i)) FAIL("128 bits: operation %u of element %u is wrong", i % 6, i);
        CHECK(cudaFree(values[b]));
        CHECK(cudaFree(singles[b]));
    }
    return succeed();
}

// Half precision, of either kind, alone and in pairs: arithmetic, comparison and conversion, rounded once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "batches.h"

// The operands of one element: exact in both formats, and small enough for sums and products to be exact in
// double.
struct Operands {
    float a, b, c;
};

template <class Pair>
struct Results {
    Pair sum, product, fused, quotient, larger;
    unsigned less;
    bool operator==(const Results& other) const { return std::memcmp(this, &other, sizeof(*this)) == 0; }
    explicit operator double() const { return __low2float(sum); }
};

using Half = Results<__half2>;
using Bfloat = Results<__nv_bfloat162>;

__global__ void halves(const Operands* in, Half* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const __half2 a = __floats2half2_rn(in[i].a, in[i].b), b = __floats2half2_rn(in[i].b, in[i].c);
    const __half2 c = __float2half2_rn(in[i].c);
    Half result;
    result.sum = __hadd2(a, b);
    result.product = __halves2half2(__low2half(a) * __low2half(b), __high2half(a) * __high2half(b));
    result.fused = __hfma2(a, b, c);
    result.quotient = __half2(__hdiv(__low2half(a), __low2half(b)), hsqrt(__habs(__high2half(a))));
    result.larger = __hmax2(a, b);
    result.less = __hlt(__low2half(a), __low2half(b)) | __hbge2(a, b) << 1;
    out[i] = result;
}

__global__ void bfloats(const Operands* in, Bfloat* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const __nv_bfloat162 a = __floats2bfloat162_rn(in[i].a, in[i].b),
                         b = __floats2bfloat162_rn(in[i].b, in[i].c);
    Bfloat result;
    result.sum = __hadd2(a, b);
    result.product =
        __halves2bfloat162(__low2bfloat16(a) * __low2bfloat16(b), __high2bfloat16(a) * __high2bfloat16(b));
    // Arithmetic fused in this format needs compute capability 8.0; in double it is exact.
    const double x = in[i].a, y = in[i].b, z = in[i].c;
    result.fused = __halves2bfloat162(__double2bfloat16(fma(x, y, z)), __double2bfloat16(fma(y, z, z)));
    result.quotient =
        __nv_bfloat162(__hdiv(__low2bfloat16(a), __low2bfloat16(b)), hsqrt(__habs(__high2bfloat16(a))));
    result.larger = __hmax2(a, b);
    result.less = __hlt(__low2bfloat16(a), __low2bfloat16(b)) | __hbge2(a, b) << 1;
    out[i] = result;
}

// `pair` rounds two doubles to the format.
template <class Result, class Pair>
std::vector<Result> expected(const std::vector<Operands>& in, const Pair& pair) {
    std::vector<Result> out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
        const double a = in[i].a, b = in[i].b, c = in[i].c;
        std::memset(&out[i], 0, sizeof(Result));
        out[i].sum = pair(a + b, b + c);
        out[i].product = pair(a * b, b * c);
        out[i].fused = pair(a * b + c, b * c + c);
        out[i].quotient = pair(a / b, std::sqrt(std::fabs(b)));
        out[i].larger = pair(std::max(a, b), std::max(b, c));
        out[i].less = (a < b) | (a >= b && b >= c) << 1;
    }
    return out;
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    auto make = [](std::size_t i) {
        // Seven bits of fraction, not zero.
        auto value = [i](unsigned seed) {
            const float size = static_cast<float>(noise(i, seed) % 128 + 128) / 64;
            return std::ldexp(noise(i, seed + 1) & 1 ? size : -size,
                              static_cast<int>(noise(i, seed + 2) % 9) - 4);
        };
        return Operands{value(0), value(3), value(6)};
    };
    over_batches<Operands, Half>(
        bytes, "half", make,
        [](const Operands* in, Half* out, unsigned n) { halves<<<blocks_for(n), 256>>>(in, out, n); },
        [](const std::vector<Operands>& in) {
            return expected<Half>(
                in, [](double a, double b) { return __halves2half2(__double2half(a), __double2half(b)); });
        });
    over_batches<Operands, Bfloat>(
        bytes, "bfloat16", make,
        [](const Operands* in, Bfloat* out, unsigned n) { bfloats<<<blocks_for(n), 256>>>(in, out, n); },
        [](const std::vector<Operands>& in) {
            return expected<Bfloat>(in, [](double a, double b) {
                return __halves2bfloat162(__double2bfloat16(a), __double2bfloat16(b));
            });
        });
    return succeed();
}

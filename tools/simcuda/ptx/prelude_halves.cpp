// f16 and bf16, single and packed. Values travel as their bits. One rounding per operation: results that a
// float or double would round a first time are rounded to odd there.
#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {

const char kPreludeHalves[] = R"C(
INLINE double sc_wide_f16(u16 a) { _Float16 h; __builtin_memcpy(&h, &a, 2); return (float)h; }
INLINE double sc_wide_bf16(u16 a) { return sc_f32((u32)a << 16); }
INLINE u16 sc_narrow_f16(double a) {
    if (a != a) return 0x7fff;
    _Float16 h = (_Float16)a; u16 r; __builtin_memcpy(&r, &h, 2); return r;
}
/* The inexact last bit is set, so that a second rounding to fewer bits sees on which side the value lies. */
INLINE double sc_odd(double sum, double error) {
    u64 bits = sc_u64(sum);
    if (error != 0 && __builtin_isfinite(error) && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
    return sc_f64(bits);
}
INLINE u16 sc_narrow_bf16(double a) {
    if (a != a) return 0x7fff;
    float f = (float)a;
    u32 bits = sc_u32(f);
    if ((double)f != a && __builtin_isfinite(f) && !(bits & 1)) bits += ((double)f < a) == (f > 0) ? 1 : -1;
    if (__builtin_isinf(f) && !__builtin_isinf(a)) bits = sc_u32(__builtin_copysignf(0x1.fffffep127f, f));
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
INLINE double sc_exact_fma(double a, double b, double c) {
    double p = a * b, s = p + c, v = s - p;
    return sc_odd(s, (p - (s - v)) + (c - v));
}
INLINE u16 sc_ftz_f16(u16 a) { return a & 0x7c00 ? a : a & 0x8000; }
INLINE u16 sc_ftz_bf16(u16 a) { return a & 0x7f80 ? a : a & 0x8000; }

#define HALF1(NAME, F, EXPRESSION) INLINE u16 sc_##NAME##_##F(u16 x) { EXPRESSION; } \
    INLINE u32 sc_##NAME##_##F##x2(u32 x) { return sc_##NAME##_##F(x) | (u32)sc_##NAME##_##F(x >> 16) << 16; }
#define HALF2(NAME, F, EXPRESSION) INLINE u16 sc_##NAME##_##F(u16 x, u16 y) { double a = sc_wide_##F(x), b = sc_wide_##F(y); EXPRESSION; } \
    INLINE u32 sc_##NAME##_##F##x2(u32 x, u32 y) { return sc_##NAME##_##F(x, y) | (u32)sc_##NAME##_##F(x >> 16, y >> 16) << 16; }
#define HALVES(F) \
    HALF2(add, F, return sc_narrow_##F(sc_exact_fma(a, 1, b))) \
    HALF2(sub, F, return sc_narrow_##F(sc_exact_fma(b, -1, a))) \
    HALF2(mul, F, return sc_narrow_##F(a * b)) \
    HALF2(min, F, return a != a ? (b != b ? 0x7fff : y) : b != b ? x : a == b ? x | y : a < b ? x : y) \
    HALF2(max, F, return a != a ? (b != b ? 0x7fff : y) : b != b ? x : a == b ? x & y : a > b ? x : y) \
    HALF2(min_nan, F, return a != a || b != b ? 0x7fff : a == b ? x | y : a < b ? x : y) \
    HALF2(max_nan, F, return a != a || b != b ? 0x7fff : a == b ? x & y : a > b ? x : y) \
    HALF1(abs, F, return x & 0x7fff) \
    HALF1(neg, F, return x ^ 0x8000) \
    HALF1(ex2, F, return sc_narrow_##F(__builtin_exp2(sc_wide_##F(x)))) \
    HALF1(tanh, F, return sc_narrow_##F(__builtin_tanh(sc_wide_##F(x)))) \
    HALF1(relu, F, double a = sc_wide_##F(x); return a != a ? 0x7fff : a > 0 ? x : 0) \
    HALF1(sat, F, double a = sc_wide_##F(x); return a > 0 ? (a < 1 ? x : sc_narrow_##F(1)) : 0) \
    INLINE u32 sc_ftz_##F##x2(u32 x) { return sc_ftz_##F(x) | (u32)sc_ftz_##F(x >> 16) << 16; } \
    INLINE u16 sc_fma_##F(u16 x, u16 y, u16 z) { \
        return sc_narrow_##F(sc_exact_fma(sc_wide_##F(x), sc_wide_##F(y), sc_wide_##F(z))); } \
    INLINE u32 sc_fma_##F##x2(u32 x, u32 y, u32 z) { \
        return sc_fma_##F(x, y, z) | (u32)sc_fma_##F(x >> 16, y >> 16, z >> 16) << 16; }
HALVES(f16) HALVES(bf16)

/* Directed roundings, from a double that holds the operand exactly. */
#define DIRECTED_HALF(F) \
    INLINE u16 sc_below_##F(u16 h) { return h & 0x8000 ? h + 1 : h ? h - 1 : 0x8001; } \
    INLINE u16 sc_above_##F(u16 h) { return h & 0x8000 ? (h == 0x8000 ? 1 : h - 1) : h + 1; } \
    INLINE u16 sc_narrow_##F##_rm(double a) { u16 h = sc_narrow_##F(a); return sc_wide_##F(h) > a ? sc_below_##F(h) : h; } \
    INLINE u16 sc_narrow_##F##_rp(double a) { u16 h = sc_narrow_##F(a); return sc_wide_##F(h) < a ? sc_above_##F(h) : h; } \
    INLINE u16 sc_narrow_##F##_rz(double a) { return a < 0 ? sc_narrow_##F##_rp(a) : sc_narrow_##F##_rm(a); }
DIRECTED_HALF(f16) DIRECTED_HALF(bf16)
)C";

}  // namespace simcuda::ptx

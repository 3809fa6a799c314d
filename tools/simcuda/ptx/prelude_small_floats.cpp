// Floats of 8 bits, and tf32. A value beyond the largest finite one becomes that one.
#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {

const char kPreludeSmallFloats[] = R"C(
/* e4m3 has no infinities, and one NaN of each sign; e5m2 is the upper half of an f16. */
INLINE double sc_wide_e4m3(u8 x) {
    const u32 exponent = x >> 3 & 15, fraction = x & 7;
    if ((x & 0x7f) == 0x7f) return __builtin_nan("");
    const double a = exponent ? __builtin_ldexp(8 + fraction, (s32)exponent - 10) : fraction * 0x1p-9;
    return x & 0x80 ? -a : a;
}
/* Round to nearest even. FRACTION bits of fraction, a bias of BIAS; numbers below 1 - BIAS are subnormal. */
#define NARROW8(F, FRACTION, BIAS, LARGEST) \
    INLINE u8 sc_narrow_##F(float a) { \
        u32 bits = sc_u32(a), sign = bits >> 31 << 7, low = 23 - FRACTION; \
        if (a != a) return 0x7f; \
        a = __builtin_fabsf(a); bits &= 0x7fffffff; \
        if (a < sc_f32((u32)(128 - BIAS) << 23)) return sign | (u32)__builtin_rintf(a * sc_f32((u32)(126 + BIAS + FRACTION) << 23)); \
        bits = (bits + (1u << (low - 1)) - 1 + (bits >> low & 1)) >> low; \
        bits -= (u32)(127 - BIAS) << FRACTION; \
        return sign | (bits > LARGEST ? LARGEST : bits); }
NARROW8(e4m3, 3, 7, 0x7e) NARROW8(e5m2, 2, 15, 0x7b)
INLINE u8 sc_relu_e4m3(u8 x) { return (x & 0x7f) == 0x7f || !(x & 0x80) ? x : 0; }
INLINE u8 sc_relu_e5m2(u8 x) { return (x & 0x7f) > 0x7c || !(x & 0x80) ? x : 0; }
INLINE u16 sc_f16_e4m3(u8 x) { return sc_narrow_f16(sc_wide_e4m3(x)); }
INLINE u16 sc_f16_e5m2(u8 x) { return sc_narrow_f16(sc_wide_f16(x << 8)); }

/* tf32 is an f32 whose last 13 bits are zero. */
INLINE u32 sc_narrow_tf32(float a, u32 half) {
    const u32 bits = sc_u32(a);
    if (a != a) return 0x7fffffff;
    return __builtin_isinf(a) ? bits : (bits + half) & 0xffffe000;
}
INLINE u32 sc_tf32_rna(float a) { return sc_narrow_tf32(a, 0x1000); }
INLINE u32 sc_tf32_rn(float a) { return sc_narrow_tf32(a, 0xfff + (sc_u32(a) >> 13 & 1)); }
INLINE u32 sc_tf32_rz(float a) { return sc_narrow_tf32(a, 0); }
INLINE u32 sc_sat_tf32(u32 x) { return (x & 0x7fffffff) == 0x7f800000 ? x - 0x2000 : x; }
INLINE u32 sc_relu_tf32(u32 x) { return x >> 31 ? 0 : x; }
)C";

}  // namespace simcuda::ptx

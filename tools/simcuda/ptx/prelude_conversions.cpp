// cvt: between integers, between floats, and across, with every rounding mode.
#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {

const char kPreludeConversions[] = R"C(
/* Integer to narrower or differently signed integer, clamped. */
#define SATURATE(T, LOW, HIGH) INLINE T sc_sat_##T(s128 a) { return a < LOW ? LOW : a > HIGH ? HIGH : (T)a; }
SATURATE(u8, 0, 0xff) SATURATE(u16, 0, 0xffff) SATURATE(u32, 0, 0xffffffff) SATURATE(u64, 0, 0xfffffffffffffffful)
SATURATE(s8, -0x80, 0x7f) SATURATE(s16, -0x8000, 0x7fff) SATURATE(s32, (-0x7fffffff - 1), 0x7fffffff)
SATURATE(s64, (-0x7fffffffffffffffl - 1), 0x7fffffffffffffffl)

/* The neighbour below and above; infinities step to the largest finite number. */
#define NEIGHBOURS(T, S, U, BITS) \
    INLINE T sc_below_##S(T a) { U b = BITS(a); return sc_##S(a == 0 ? (U)1 << (sizeof(U) * 8 - 1) | 1 : a > 0 ? b - 1 : b + 1); } \
    INLINE T sc_above_##S(T a) { U b = BITS(a); return sc_##S(a == 0 ? 1 : a > 0 ? b + 1 : b - 1); }
NEIGHBOURS(float, f32, u32, sc_u32) NEIGHBOURS(double, f64, u64, sc_u64)

/* Integer to float: round to nearest, then step back if that went the wrong way. */
#define FROM_INTEGER(T, S) \
    INLINE T sc_##S##_int(s128 a) { return a < 0 ? (T)(s64)a : (T)(u64)a; } \
    INLINE T sc_##S##_int_rm(s128 a) { T r = sc_##S##_int(a); return (s128)r > a ? sc_below_##S(r) : r; } \
    INLINE T sc_##S##_int_rp(s128 a) { T r = sc_##S##_int(a); return (s128)r < a ? sc_above_##S(r) : r; } \
    INLINE T sc_##S##_int_rz(s128 a) { return a < 0 ? sc_##S##_int_rp(a) : sc_##S##_int_rm(a); }
FROM_INTEGER(float, f32) FROM_INTEGER(double, f64)

/* The GPU's f32 NaN is positive. */
INLINE double sc_f64_f32(float a) { return a != a ? sc_f64(0x7fffffffe0000000) : a; }
INLINE float sc_f32_f64(double a) { return (float)a; }
INLINE float sc_f32_f64_rm(double a) { float r = (float)a; return r > a ? sc_below_f32(r) : r; }
INLINE float sc_f32_f64_rp(double a) { float r = (float)a; return r < a ? sc_above_f32(r) : r; }
INLINE float sc_f32_f64_rz(double a) { return a < 0 ? sc_f32_f64_rp(a) : sc_f32_f64_rm(a); }

/* Rounding to an integral value. */
INLINE float sc_rni_f32(float a) { return __builtin_rintf(a); }
INLINE float sc_rzi_f32(float a) { return __builtin_truncf(a); }
INLINE float sc_rmi_f32(float a) { return __builtin_floorf(a); }
INLINE float sc_rpi_f32(float a) { return __builtin_ceilf(a); }
INLINE double sc_rni_f64(double a) { return __builtin_rint(a); }
INLINE double sc_rzi_f64(double a) { return __builtin_trunc(a); }
INLINE double sc_rmi_f64(double a) { return __builtin_floor(a); }
INLINE double sc_rpi_f64(double a) { return __builtin_ceil(a); }

/* An integral float to integer: out of range clamps; NaN is zero unless 64 bits are on either side. */
#define TO_INTEGER(D, F, T, LOW, BELOW, HIGH, ABOVE, NOT_A_NUMBER) \
    INLINE D sc_##D##_##F(T a) { return a != a ? (D)(NOT_A_NUMBER) : a < (T)BELOW ? (D)LOW : a >= (T)ABOVE ? (D)HIGH : (D)a; }
#define TO_INTEGERS(D, LOW, BELOW, HIGH, ABOVE, TOP) \
    TO_INTEGER(D, f32, float, LOW, BELOW, HIGH, ABOVE, sizeof(D) == 8 ? TOP : 0) \
    TO_INTEGER(D, f64, double, LOW, BELOW, HIGH, ABOVE, TOP)
TO_INTEGERS(u8, 0, 0, 0xff, 0x1p8, 0x80) TO_INTEGERS(u16, 0, 0, 0xffff, 0x1p16, 0x8000)
TO_INTEGERS(u32, 0, 0, 0xffffffff, 0x1p32, 0x80000000)
TO_INTEGERS(u64, 0, 0, 0xfffffffffffffffful, 0x1p64, 0x8000000000000000ul)
TO_INTEGERS(s8, -0x80, -0x80, 0x7f, 0x1p7, 0x80) TO_INTEGERS(s16, -0x8000, -0x8000, 0x7fff, 0x1p15, 0x8000)
TO_INTEGERS(s32, 0x80000000, -0x1p31, 0x7fffffff, 0x1p31, 0x80000000)
TO_INTEGERS(s64, 0x8000000000000000ul, -0x1p63, 0x7fffffffffffffffl, 0x1p63, 0x8000000000000000ul)
)C";

}  // namespace simcuda::ptx

// f32 and f64 arithmetic: directed rounding, flushing, saturation, minima and maxima.
#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {

const char kPreludeFloats[] = R"C(
INLINE u32 sc_u32(float a) { u32 r; __builtin_memcpy(&r, &a, 4); return r; }
INLINE u64 sc_u64(double a) { u64 r; __builtin_memcpy(&r, &a, 8); return r; }
INLINE float sc_f32(u32 a) { float r; __builtin_memcpy(&r, &a, 4); return r; }
INLINE double sc_f64(u64 a) { double r; __builtin_memcpy(&r, &a, 8); return r; }

INLINE float sc_ftz_f32(float a) { return __builtin_fabsf(a) < 0x1p-126f ? __builtin_copysignf(0, a) : a; }
INLINE float sc_sat_f32(float a) { return a > 0 ? (a < 1 ? a : 1) : 0; }
INLINE double sc_sat_f64(double a) { return a > 0 ? (a < 1 ? a : 1) : 0; }
/* Every f32 operation of the GPU that makes a NaN makes this one. */
INLINE float sc_canonical_f32(float a) { return a != a ? sc_f32(0x7fffffff) : a; }

INLINE float sc_add_f32(float a, float b) { return a + b; }
INLINE float sc_sub_f32(float a, float b) { return a - b; }
INLINE float sc_mul_f32(float a, float b) { return a * b; }
INLINE float sc_div_f32(float a, float b) { return a / b; }
INLINE float sc_sqrt_f32(float a) { return __builtin_sqrtf(a); }
INLINE float sc_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double sc_add_f64(double a, double b) { return a + b; }
INLINE double sc_sub_f64(double a, double b) { return a - b; }
INLINE double sc_mul_f64(double a, double b) { return a * b; }
INLINE double sc_div_f64(double a, double b) { return a / b; }
INLINE double sc_sqrt_f64(double a) { return __builtin_sqrt(a); }
INLINE double sc_fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }

/* One assembly statement sets the mode, computes and resets it, so that no other operation can fall between. */
#ifdef __AVX512F__
#define WITH_MODE(INSTRUCTION, MODE, SAE, ARGS, ...) __asm__(INSTRUCTION " %{" SAE "-sae%}, " ARGS : __VA_ARGS__)
#define VECTOR "v"
#else
#define WITH_MODE(INSTRUCTION, MODE, SAE, ARGS, ...) \
    __asm__("vldmxcsr sc_mxcsr_" SAE "(%%rip)\n" INSTRUCTION " " ARGS "\nvldmxcsr sc_mxcsr_rn(%%rip)" : __VA_ARGS__)
#define VECTOR "x"
__asm__(".section .rodata\n.balign 4\nsc_mxcsr_rn: .long 0x1f80\nsc_mxcsr_rd: .long 0x3f80\n"
        "sc_mxcsr_ru: .long 0x5f80\nsc_mxcsr_rz: .long 0x7f80\n.text\n");
#endif
#define DIRECTED2(NAME, INSTRUCTION, T, MODE, SAE) \
    INLINE T sc_##NAME##_##MODE(T a, T b) { T r; WITH_MODE(INSTRUCTION, MODE, SAE, "%2, %1, %0", "=" VECTOR(r) : VECTOR(a), VECTOR(b)); return r; }
#define DIRECTED1(NAME, INSTRUCTION, T, MODE, SAE) \
    INLINE T sc_##NAME##_##MODE(T a) { T r; WITH_MODE(INSTRUCTION, MODE, SAE, "%1, %1, %0", "=" VECTOR(r) : VECTOR(a)); return r; }
#define DIRECTED3(NAME, INSTRUCTION, T, MODE, SAE) \
    INLINE T sc_##NAME##_##MODE(T a, T b, T c) { WITH_MODE(INSTRUCTION, MODE, SAE, "%2, %1, %0", "+" VECTOR(a) : VECTOR(b), VECTOR(c)); return a; }
#define DIRECTED(MODE, SAE) \
    DIRECTED2(add_f32, "vaddss", float, MODE, SAE) DIRECTED2(add_f64, "vaddsd", double, MODE, SAE) \
    DIRECTED2(sub_f32, "vsubss", float, MODE, SAE) DIRECTED2(sub_f64, "vsubsd", double, MODE, SAE) \
    DIRECTED2(mul_f32, "vmulss", float, MODE, SAE) DIRECTED2(mul_f64, "vmulsd", double, MODE, SAE) \
    DIRECTED2(div_f32, "vdivss", float, MODE, SAE) DIRECTED2(div_f64, "vdivsd", double, MODE, SAE) \
    DIRECTED1(sqrt_f32, "vsqrtss", float, MODE, SAE) DIRECTED1(sqrt_f64, "vsqrtsd", double, MODE, SAE) \
    DIRECTED3(fma_f32, "vfmadd213ss", float, MODE, SAE) DIRECTED3(fma_f64, "vfmadd213sd", double, MODE, SAE)
DIRECTED(rz, "rz") DIRECTED(rm, "rd") DIRECTED(rp, "ru")

INLINE float sc_abs_f32(float a) { return __builtin_fabsf(a); }
INLINE double sc_abs_f64(double a) { return __builtin_fabs(a); }
INLINE float sc_neg_f32(float a) { return -a; }
INLINE double sc_neg_f64(double a) { return -a; }
INLINE float sc_copysign_f32(float sign, float a) { return __builtin_copysignf(a, sign); }
INLINE double sc_copysign_f64(double sign, double a) { return __builtin_copysign(a, sign); }

/* A NaN loses against a number, and -0 is below +0. */
#define EXTREMES(T, S, BITS) \
    INLINE T sc_min_##S(T a, T b) { return a == b ? sc_##S(BITS(a) | BITS(b)) : b != b || a < b ? a : b; } \
    INLINE T sc_max_##S(T a, T b) { return a == b ? sc_##S(BITS(a) & BITS(b)) : b != b || a > b ? a : b; }
EXTREMES(float, f32, sc_u32) EXTREMES(double, f64, sc_u64)
INLINE float sc_min_nan_f32(float a, float b) { return a != a || b != b ? sc_f32(0x7fffffff) : sc_min_f32(a, b); }
INLINE float sc_max_nan_f32(float a, float b) { return a != a || b != b ? sc_f32(0x7fffffff) : sc_max_f32(a, b); }

/* A divisor above 2^126 gives zero, or NaN for an infinite dividend, as documented. */
INLINE float sc_div_approx(float a, float b) { return __builtin_fabsf(b) > 0x1p126f ? a * __builtin_copysignf(0, b) : a / b; }
INLINE float sc_rsqrt_f32(float a) { return 1 / __builtin_sqrtf(a); }
/* These work on the upper half of their operand and give the upper half of their result. */
INLINE double sc_upper(double a) { return sc_f64(sc_u64(a) & 0xffffffff00000000); }
INLINE double sc_ftz_f64(double a) { return __builtin_fabs(a) < 0x1p-1022 ? __builtin_copysign(0, a) : a; }
INLINE double sc_rcp_approx_f64(double a) { return sc_ftz_f64(sc_upper(1 / sc_ftz_f64(sc_upper(a)))); }
INLINE double sc_rsqrt_approx_f64(double a) { return sc_upper(1 / __builtin_sqrt(sc_ftz_f64(sc_upper(a)))); }
)C";

}  // namespace simcuda::ptx

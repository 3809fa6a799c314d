// Integer instructions that C has no operator for.
#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {

const char kPreludeIntegers[] = R"C(
#define INLINE static inline __attribute__((always_inline))

INLINE s32 sc_add_sat(s32 a, s32 b) { s32 r; return __builtin_add_overflow(a, b, &r) ? (a < 0 ? -2147483647 - 1 : 2147483647) : r; }
INLINE s32 sc_sub_sat(s32 a, s32 b) { s32 r; return __builtin_sub_overflow(a, b, &r) ? (a < 0 ? -2147483647 - 1 : 2147483647) : r; }
INLINE s32 sc_relu_s32(s32 a) { return a < 0 ? 0 : a; }

#define CARRY(T, U)                                                                   \
    INLINE T sc_add_cc_##T(T a, T b, u32 in, u32* out) {                              \
        U r, s; *out = __builtin_add_overflow((U)a, (U)b, &r) | __builtin_add_overflow(r, (U)in, &s); return s; }
CARRY(u32, u32) CARRY(s32, u32) CARRY(u64, u64) CARRY(s64, u64)

INLINE u16 sc_mul_hi_u16(u16 a, u16 b) { return (u32)a * b >> 16; }
INLINE s16 sc_mul_hi_s16(s16 a, s16 b) { return (s32)a * b >> 16; }
INLINE u32 sc_mul_hi_u32(u32 a, u32 b) { return (u64)a * b >> 32; }
INLINE s32 sc_mul_hi_s32(s32 a, s32 b) { return (s64)a * b >> 32; }
INLINE u64 sc_mul_hi_u64(u64 a, u64 b) { return (u128)a * b >> 64; }
INLINE s64 sc_mul_hi_s64(s64 a, s64 b) { return (s128)a * b >> 64; }
INLINE s64 sc_s24(s32 a) { return (s32)((u32)a << 8) >> 8; }
INLINE u32 sc_mul24_lo_u32(u32 a, u32 b) { return (u64)(a & 0xffffff) * (b & 0xffffff); }
INLINE u32 sc_mul24_hi_u32(u32 a, u32 b) { return (u64)(a & 0xffffff) * (b & 0xffffff) >> 16; }
INLINE s32 sc_mul24_lo_s32(s32 a, s32 b) { return sc_s24(a) * sc_s24(b); }
INLINE s32 sc_mul24_hi_s32(s32 a, s32 b) { return sc_s24(a) * sc_s24(b) >> 16; }

/* Division by zero gives all ones and the remainder the dividend; the most negative number by -1 wraps. */
#define DIVIDE_U(T) \
    INLINE T sc_div_##T(T a, T b) { return b ? a / b : (T)-1; } \
    INLINE T sc_rem_##T(T a, T b) { return b ? a % b : a; }
#define DIVIDE_S(T) \
    INLINE T sc_div_##T(T a, T b) { return b == 0 ? (T)-1 : b == -1 ? (T)-a : (T)(a / b); } \
    INLINE T sc_rem_##T(T a, T b) { return b == 0 ? a : b == -1 ? (T)0 : (T)(a % b); }
DIVIDE_U(u16) DIVIDE_U(u32) DIVIDE_U(u64) DIVIDE_S(s16) DIVIDE_S(s32) DIVIDE_S(s64)

#define DOT(A, SA, B, SB) \
    INLINE u32 sc_dp4a_##A##_##B(u32 a, u32 b, u32 c) { \
        for (int i = 0; i < 32; i += 8) c += (u32)((s32)(SA##8)(a >> i) * (s32)(SB##8)(b >> i)); return c; } \
    INLINE u32 sc_dp2a_##A##_##B(u32 a, u32 b, u32 c) { \
        for (int i = 0; i < 2; ++i) c += (u32)((s32)(SA##16)(a >> 16 * i) * (s32)(SB##8)(b >> 8 * i)); return c; }
/* dp2a.lo takes the low two bytes of b, dp2a.hi the high two: the caller shifts. */
DOT(u32, u, u32, u) DOT(u32, u, s32, s) DOT(s32, s, u32, u) DOT(s32, s, s32, s)

INLINE u32 sc_clz_b32(u32 a) { return a ? __builtin_clz(a) : 32; }
INLINE u32 sc_clz_b64(u64 a) { return a ? __builtin_clzl(a) : 64; }
INLINE u32 sc_bfind_u32(u32 a) { return a ? 31 - __builtin_clz(a) : ~0u; }
INLINE u32 sc_bfind_u64(u64 a) { return a ? 63 - __builtin_clzl(a) : ~0u; }
INLINE u32 sc_bfind_s32(s32 a) { return sc_bfind_u32(a < 0 ? ~a : a); }
INLINE u32 sc_bfind_s64(s64 a) { return sc_bfind_u64(a < 0 ? ~a : a); }
INLINE u32 sc_bfind_shift_u32(u32 a) { return a ? __builtin_clz(a) : ~0u; }
INLINE u32 sc_bfind_shift_u64(u64 a) { return a ? __builtin_clzl(a) : ~0u; }
INLINE u32 sc_bfind_shift_s32(s32 a) { return sc_bfind_shift_u32(a < 0 ? ~a : a); }
INLINE u32 sc_bfind_shift_s64(s64 a) { return sc_bfind_shift_u64(a < 0 ? ~a : a); }
INLINE u32 sc_brev_b32(u32 a) {
    a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
    a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
    a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(a);
}
INLINE u64 sc_brev_b64(u64 a) { return (u64)sc_brev_b32(a) << 32 | sc_brev_b32(a >> 32); }
INLINE u32 sc_fns(u32 mask, u32 base, s32 offset) {
    s32 at = base;
    if (offset == 0) return mask >> (base & 31) & 1 ? base : ~0u;
    s32 step = offset > 0 ? 1 : -1, left = offset > 0 ? offset : -offset;
    for (; at >= 0 && at < 32; at += step)
        if (mask >> at & 1 && --left == 0) return at;
    return ~0u;
}

/* Position and length are taken modulo 256; what lies beyond the word is zero, or the sign bit. */
#define EXTRACT(U, S, BITS) \
    INLINE U sc_bfe_##U(U a, u32 position, u32 length) { \
        position &= 255; length &= 255; \
        if (!length || position >= BITS) return 0; \
        a >>= position; \
        return length >= BITS ? a : a & (((U)1 << length) - 1); } \
    INLINE S sc_bfe_##S(S a, u32 position, u32 length) { \
        position &= 255; length &= 255; \
        if (!length) return 0; \
        if (position >= BITS) return a >> (BITS - 1); \
        if (position + length >= BITS) return a >> position; \
        return (S)((U)a << (BITS - position - length)) >> (BITS - length); }
EXTRACT(u32, s32, 32) EXTRACT(u64, s64, 64)
#define INSERT(B, U, BITS) \
    INLINE U sc_bfi_##B(U a, U b, u32 position, u32 length) { \
        position &= 255; length &= 255; \
        if (!length || position >= BITS) return b; \
        U mask = (length >= BITS ? ~(U)0 : ((U)1 << length) - 1) << position; \
        return (b & ~mask) | (a << position & mask); }
INSERT(b32, u32, 32) INSERT(b64, u64, 64)
INLINE u32 sc_szext_u32(u32 a, u32 n) { return n >= 32 ? a : n ? a & ((1u << n) - 1) : 0; }
INLINE s32 sc_szext_s32(s32 a, u32 n) { return n >= 32 ? a : n ? (s32)((u32)a << (32 - n)) >> (32 - n) : 0; }
INLINE u32 sc_bmsk(u32 position, u32 length) {
    u32 mask = length >= 32 ? ~0u : (1u << length) - 1;
    return position >= 32 ? 0 : mask << position;
}

/* A shift by the width or more leaves zeros, or sign bits. */
#define SHIFT(B, U, S, BITS) \
    INLINE U sc_shl_##B(U a, u32 n) { return n >= BITS ? 0 : (U)(a << n); } \
    INLINE U sc_shr_##B(U a, u32 n) { return n >= BITS ? 0 : (U)(a >> n); } \
    INLINE U sc_shr_##U(U a, u32 n) { return n >= BITS ? 0 : (U)(a >> n); } \
    INLINE S sc_shr_##S(S a, u32 n) { return a >> (n >= BITS ? BITS - 1 : n); }
SHIFT(b16, u16, s16, 16) SHIFT(b32, u32, s32, 32) SHIFT(b64, u64, s64, 64)
INLINE u32 sc_shf_l(u32 low, u32 high, u32 n) { return ((u64)high << 32 | low) << n >> 32; }
INLINE u32 sc_shf_r(u32 low, u32 high, u32 n) { return ((u64)high << 32 | low) >> n; }

INLINE u32 sc_lop3(u32 a, u32 b, u32 c, u32 table) {
    u32 r = 0;
    if (table & 0x01) r |= ~a & ~b & ~c;
    if (table & 0x02) r |= ~a & ~b & c;
    if (table & 0x04) r |= ~a & b & ~c;
    if (table & 0x08) r |= ~a & b & c;
    if (table & 0x10) r |= a & ~b & ~c;
    if (table & 0x20) r |= a & ~b & c;
    if (table & 0x40) r |= a & b & ~c;
    if (table & 0x80) r |= a & b & c;
    return r;
}
INLINE u32 sc_prmt(u32 a, u32 b, u32 selector) {
    u64 bytes = (u64)b << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; ++i) {
        u32 s = selector >> 4 * i;
        u8 byte = bytes >> 8 * (s & 7);
        r |= (u32)(u8)(s & 8 ? (s8)byte >> 7 : byte) << 8 * i;
    }
    return r;
}
INLINE u32 sc_prmt_b4e(u32 n) { return n & 2 ? (n & 1 ? 0x0123 : 0x7012) : (n & 1 ? 0x6701 : 0x5670); }
INLINE u32 sc_prmt_ecl(u32 n) { return n & 2 ? (n & 1 ? 0x3333 : 0x3222) : (n & 1 ? 0x3211 : 0x3210); }
INLINE u32 sc_prmt_ecr(u32 n) { return n & 2 ? (n & 1 ? 0x3210 : 0x2210) : (n & 1 ? 0x1110 : 0x0000); }
)C";

}  // namespace simcuda::ptx

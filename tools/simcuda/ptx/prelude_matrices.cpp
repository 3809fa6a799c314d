// Matrices that a warp holds together: ldmatrix, stmatrix, movmatrix, mma and wmma. The last lane to come
// works for all. Elements lie where the PTX ISA has them, but for wmma's, which it leaves open: there a lane
// has consecutive ones, of B those of a column.
//
// Products are exact and are added to the accumulator as doubles, in the order of k; the result is rounded
// once. CUDA leaves open the order and precision of the sum beyond that of the type of the result; this is
// at least as exact as any, and the same everywhere. Elements of f64 go through a chain of fma, also in the
// order of k, in the rounding mode of the instruction.
#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {

const char kPreludeMatrices[] = R"C(
enum sc_element {
    SC_F16, SC_BF16, SC_TF32, SC_F32, SC_F64, SC_E4M3, SC_E5M2, SC_U8, SC_S8, SC_U4, SC_S4, SC_B1, SC_S32
};
enum sc_layout { SC_MMA, SC_QUADS, SC_WMMA };
enum { SC_A_BY_COLUMN = 1, SC_B_BY_ROW = 2, SC_SATURATES = 4, SC_XOR = 8, SC_RZ = 16, SC_RM = 32, SC_RP = 64 };
struct sc_product {
    u32 m, n, k;
    enum sc_layout layout;
    enum sc_element a, b, c, d;
    u32 flags;
};
struct sc_fragment {
    u32 rows, columns, words;
    enum sc_element element;
    _Bool by_column, stores;
};
/* What a lane brings, and what it gets. */
struct sc_part {
    void (*work)(struct sc_part* const*);
    const void* what;
    u64 address, stride;
    u32 a[16] __attribute__((aligned(8))), b[8] __attribute__((aligned(8))), c[8] __attribute__((aligned(8))), d[8] __attribute__((aligned(8)));
};
struct sc_place { u32 lane, index; };

INLINE u32 sc_bits_of(enum sc_element e) {
    return e == SC_F64 ? 64 : e == SC_TF32 || e == SC_F32 || e == SC_S32 ? 32 : e <= SC_BF16 ? 16
         : e <= SC_S8 ? 8 : e <= SC_S4 ? 4 : 1;
}
INLINE u64 sc_raw(const u32* words, u32 bits, u32 index) {
    if (bits == 64) return ((const u64*)words)[index];
    return words[index * bits / 32] >> index * bits % 32 & (u32)((1ul << bits) - 1);
}
static double sc_real(const u32* words, enum sc_element e, u32 index) {
    const u64 raw = sc_raw(words, sc_bits_of(e), index);
    switch (e) {
        case SC_F16: return sc_wide_f16(raw);
        case SC_BF16: return sc_wide_bf16(raw);
        case SC_TF32: return sc_f32(raw & 0xffffe000);
        case SC_F32: return sc_f32(raw);
        case SC_E4M3: return sc_wide_e4m3(raw);
        case SC_E5M2: return sc_wide_f16(raw << 8);
        default: return sc_f64(raw);
    }
}
static s32 sc_whole(const u32* words, enum sc_element e, u32 index) {
    const u32 bits = sc_bits_of(e), raw = sc_raw(words, bits, index);
    return e == SC_U8 || e == SC_U4 ? (s32)raw : (s32)(raw << (32 - bits)) >> (32 - bits);
}
static void sc_put_real(u32* words, enum sc_element e, u32 index, double value) {
    if (e == SC_F64) ((u64*)words)[index] = sc_u64(value);
    else if (e == SC_F16) ((u16*)words)[index] = sc_narrow_f16(value);
    else words[index] = sc_u32(sc_canonical_f32((float)value));
}
static s32 sc_integer_sum(s64 sum, u32 flags) { return flags & SC_SATURATES ? sc_sat_s32(sum) : (s32)sum; }

INLINE u32 sc_per_word(enum sc_element e) { return sc_bits_of(e) > 32 ? 1 : 32 / sc_bits_of(e); }
INLINE struct sc_place sc_dealt(u32 index, u32 elements) {
    return (struct sc_place){index / (elements / 32), index % (elements / 32)};
}
static struct sc_place sc_place_a(const struct sc_product* p, u32 quad, u32 i, u32 k) {
    if (p->layout == SC_WMMA) return sc_dealt(i * p->k + k, p->m * p->k);
    if (p->layout == SC_QUADS) {
        const u32 across = p->flags & SC_A_BY_COLUMN ? k : i % 4, along = p->flags & SC_A_BY_COLUMN ? i % 4 : k;
        return (struct sc_place){quad * 4 + across + (i >= 4 ? 16 : 0), along};
    }
    const u32 e = sc_per_word(p->a), word = (p->m / 8) * (k / (4 * e)) + i / 8;
    return (struct sc_place){i % 8 * 4 + k / e % 4, word * e + k % e};
}
static struct sc_place sc_place_b(const struct sc_product* p, u32 quad, u32 k, u32 j) {
    if (p->layout == SC_WMMA) return sc_dealt(j * p->k + k, p->k * p->n);
    if (p->layout == SC_QUADS) {
        const u32 across = p->flags & SC_B_BY_ROW ? k : j % 4, along = p->flags & SC_B_BY_ROW ? j % 4 : k;
        return (struct sc_place){quad * 4 + across + (j >= 4 ? 16 : 0), along};
    }
    const u32 e = sc_per_word(p->b);
    return (struct sc_place){j * 4 + k / e % 4, k / (4 * e) * e + k % e};
}
static struct sc_place sc_place_c(const struct sc_product* p, enum sc_element e, u32 quad, u32 i, u32 j) {
    if (p->layout == SC_WMMA) return sc_dealt(i * p->n + j, p->m * p->n);
    if (p->layout == SC_QUADS && e == SC_F16) return (struct sc_place){quad * 4 + i % 4 + (i >= 4 ? 16 : 0), j};
    if (p->layout == SC_QUADS)
        return (struct sc_place){quad * 4 + (i & 1) + (j & 2) + (i >= 4 ? 16 : 0), (i & 2) + (j & 4) + (j & 1)};
    return (struct sc_place){i % 8 * 4 + j / 2, i / 8 * 2 + j % 2};
}
#define SC_WORDS(MATRIX, PLACE) (lanes[(PLACE).lane]->MATRIX)

static double sc_step_f64(double a, double b, double c, u32 flags) {
    if (flags & SC_RZ) return sc_fma_f64_rz(a, b, c);
    if (flags & SC_RM) return sc_fma_f64_rm(a, b, c);
    if (flags & SC_RP) return sc_fma_f64_rp(a, b, c);
    return __builtin_fma(a, b, c);
}
static void sc_multiply_reals(const struct sc_product* p, struct sc_part* const* lanes, u32 quad) {
    double b[512], sum[32];
    for (u32 k = 0; k < p->k; ++k)
        for (u32 j = 0; j < p->n; ++j) {
            const struct sc_place at = sc_place_b(p, quad, k, j);
            b[k * p->n + j] = sc_real(SC_WORDS(b, at), p->b, at.index);
        }
    for (u32 i = 0; i < p->m; ++i) {
        for (u32 j = 0; j < p->n; ++j) {
            const struct sc_place at = sc_place_c(p, p->c, quad, i, j);
            sum[j] = sc_real(SC_WORDS(c, at), p->c, at.index);
        }
        for (u32 k = 0; k < p->k; ++k) {
            const struct sc_place at = sc_place_a(p, quad, i, k);
            const double a = sc_real(SC_WORDS(a, at), p->a, at.index);
            const double* const row = b + k * p->n;
            if (p->a == SC_F64) for (u32 j = 0; j < p->n; ++j) sum[j] = sc_step_f64(a, row[j], sum[j], p->flags);
            else for (u32 j = 0; j < p->n; ++j) sum[j] += a * row[j];
        }
        for (u32 j = 0; j < p->n; ++j) {
            const struct sc_place at = sc_place_c(p, p->d, quad, i, j);
            sc_put_real(SC_WORDS(d, at), p->d, at.index, sum[j]);
        }
    }
}
static void sc_multiply_integers(const struct sc_product* p, struct sc_part* const* lanes) {
    s16 b[512];
    s64 sum[32];
    for (u32 k = 0; k < p->k; ++k)
        for (u32 j = 0; j < p->n; ++j) {
            const struct sc_place at = sc_place_b(p, 0, k, j);
            b[k * p->n + j] = sc_whole(SC_WORDS(b, at), p->b, at.index);
        }
    for (u32 i = 0; i < p->m; ++i) {
        for (u32 j = 0; j < p->n; ++j) {
            const struct sc_place at = sc_place_c(p, SC_S32, 0, i, j);
            sum[j] = (s32)SC_WORDS(c, at)[at.index];
        }
        for (u32 k = 0; k < p->k; ++k) {
            const struct sc_place at = sc_place_a(p, 0, i, k);
            const s32 a = sc_whole(SC_WORDS(a, at), p->a, at.index);
            for (u32 j = 0; j < p->n; ++j) sum[j] += a * b[k * p->n + j];
        }
        for (u32 j = 0; j < p->n; ++j) {
            const struct sc_place at = sc_place_c(p, SC_S32, 0, i, j);
            SC_WORDS(d, at)[at.index] = sc_integer_sum(sum[j], p->flags);
        }
    }
}
static void sc_multiply_bits(const struct sc_product* p, struct sc_part* const* lanes) {
    for (u32 i = 0; i < p->m; ++i)
        for (u32 j = 0; j < p->n; ++j) {
            const struct sc_place at = sc_place_c(p, SC_S32, 0, i, j);
            s64 sum = (s32)SC_WORDS(c, at)[at.index];
            for (u32 k = 0; k < p->k; k += 32) {
                const struct sc_place from = sc_place_a(p, 0, i, k), by = sc_place_b(p, 0, k, j);
                const u32 a = SC_WORDS(a, from)[from.index / 32], b = SC_WORDS(b, by)[by.index / 32];
                sum += __builtin_popcount(p->flags & SC_XOR ? a ^ b : a & b);
            }
            SC_WORDS(d, at)[at.index] = (s32)sum;
        }
}

/* Lanes that have ended bring zeros. */
static void sc_for_all(struct sc_part* const* lanes, void (*work)(const void*, struct sc_part* const*)) {
    struct sc_part* all[32];
    struct sc_part none = {0};
    const void* what = 0;
    for (u32 l = 0; l < 32; ++l) {
        if (lanes[l]) what = lanes[l]->what;
        all[l] = lanes[l] ? lanes[l] : &none;
    }
    work(what, all);
}
static void sc_multiply_all(const void* what, struct sc_part* const* lanes) {
    const struct sc_product* p = what;
    if (p->a == SC_B1) return sc_multiply_bits(p, lanes);
    if (p->a >= SC_U8) return sc_multiply_integers(p, lanes);
    for (u32 quad = 0; quad < (p->layout == SC_QUADS ? 4 : 1); ++quad) sc_multiply_reals(p, lanes, quad);
}
static void sc_multiply(struct sc_part* const* lanes) { sc_for_all(lanes, sc_multiply_all); }

/* The element of an 8x8 matrix that is half `part` of lane's word: row and column change places with .trans. */
INLINE u16* sc_in_row(struct sc_part* const* lanes, u32 matrix, u32 lane, u32 part, _Bool transposed) {
    const u32 row = transposed ? lane % 4 * 2 + part : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + part;
    return lanes[matrix * 8 + row] ? (u16*)lanes[matrix * 8 + row]->address + column : 0;
}
static void sc_exchange_rows(struct sc_part* const* lanes) {
    const struct sc_fragment* what = 0;
    for (u32 l = 0; l < 32; ++l) if (lanes[l]) what = lanes[l]->what;
    for (u32 matrix = 0; matrix < what->words; ++matrix)
        for (u32 l = 0; l < 32; ++l)
            for (u32 part = 0; part < 2; ++part) {
                u16* const element = sc_in_row(lanes, matrix, l, part, what->by_column);
                if (!lanes[l] || !element) continue;
                if (what->stores) *element = ((u16*)&lanes[l]->a[matrix])[part];
                else ((u16*)&lanes[l]->a[matrix])[part] = *element;
            }
}
static void sc_transpose(struct sc_part* const* lanes) {
    for (u32 l = 0; l < 32; ++l)
        for (u32 part = 0; part < 2; ++part) {
            const u32 row = l % 4 * 2 + part, from = row * 4 + l / 8, half = l / 4 % 2;
            if (lanes[l] && lanes[from]) ((u16*)lanes[l]->d)[part] = ((u16*)lanes[from]->a)[half];
        }
}

/* wmma: elements between memory and the lanes that are dealt them; where a lane has room for more it has them again. */
static void sc_move_fragment(struct sc_part* const* lanes) {
    const struct sc_fragment* f = 0;
    for (u32 l = 0; l < 32; ++l) if (lanes[l]) f = lanes[l]->what;
    const u32 bits = sc_bits_of(f->element), own = f->rows * f->columns / 32, room = f->words * 32 / bits;
    for (u32 l = 0; l < 32; ++l) {
        struct sc_part* const part = lanes[l];
        for (u32 slot = 0; part && slot < (f->stores ? own : room); ++slot) {
            const u32 index = l * own + slot % own, row = index / f->columns, column = index % f->columns;
            const u64 at = (f->by_column ? column * part->stride + row : row * part->stride + column) * bits;
            u8* const memory = (u8*)part->address + at / 8;
            if (bits >= 8 && f->stores) __builtin_memcpy(memory, (u8*)part->a + slot * bits / 8, bits / 8);
            else if (bits >= 8) __builtin_memcpy((u8*)part->a + slot * bits / 8, memory, bits / 8);
            else {
                const u32 mask = (1u << bits) - 1, shift = slot * bits % 32;
                u32* const word = &part->a[slot * bits / 32];
                *word = (*word & ~(mask << shift)) | (*memory >> at % 8 & mask) << shift;
            }
        }
    }
}
)C";

}  // namespace simcuda::ptx

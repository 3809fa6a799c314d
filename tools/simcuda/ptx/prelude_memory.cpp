// Addresses, atomics, and special values.
#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {

const char kPreludeMemory[] = R"C(
typedef u8 sc_16_bytes __attribute__((vector_size(16)));
typedef u8 sc_64_bytes __attribute__((vector_size(64)));

/* The address nearest to `window` that has the low 32 bits of `address`. */
INLINE u64 sc_near(u64 window, u64 address) { return window + (u64)(s64)(s32)((u32)address - (u32)window); }

/* Shared memory of a cluster. Whose it is: the rank, or as many as there are. */
INLINE u32 sc_peer_of(struct sc_thread* t, u64 host) {
    u32 rank = 0;
    while (rank < t->block->cluster_size && host - t->block->peers[rank] + 0x80000000ul >= 0x100000000ul) ++rank;
    return rank;
}
INLINE u64 sc_cluster(struct sc_thread* t, u32 address) {
    const u32 rank = (address >> 24) - 1;
    return rank < t->block->cluster_size ? t->block->peers[rank] + (address & 0xffffff) : t->block->shared + (s32)address;
}
INLINE u32 sc_to_cluster(struct sc_thread* t, u64 host) {
    const u32 rank = sc_peer_of(t, host);
    if (rank == t->block->cluster_rank || rank == t->block->cluster_size) return host - t->block->shared;
    return (rank + 1) << 24 | ((host - t->block->peers[rank]) & 0xffffff);
}
INLINE u32 sc_on_peer(u32 address, u32 rank) { return (rank + 1) << 24 | (address & 0xffffff); }

/* A block's threads take turns on one host thread, so what only they can reach needs no lock. */
#define LOCKED(NAME, T, U, NEW) \
    INLINE T sc_atom_##NAME(u64 address, T b) { \
        U* p = (U*)address; U seen = __atomic_load_n(p, __ATOMIC_RELAXED), next; \
        do { T a; __builtin_memcpy(&a, &seen, sizeof a); T r = (NEW); __builtin_memcpy(&next, &r, sizeof r); } \
        while (!__atomic_compare_exchange_n(p, &seen, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)); \
        T a; __builtin_memcpy(&a, &seen, sizeof a); return a; }
#define OWN(NAME, T, NEW) INLINE T sc_own_##NAME(u64 address, T b) { T a = *(T*)address; *(T*)address = (NEW); return a; }
#define ATOMIC(NAME, T, U, NEW) LOCKED(NAME, T, U, NEW) OWN(NAME, T, NEW)
#define FETCH(NAME, T, BUILTIN, NEW) \
    INLINE T sc_atom_##NAME(u64 address, T b) { return BUILTIN((T*)address, b, __ATOMIC_SEQ_CST); } \
    OWN(NAME, T, NEW)
#define FETCHES(T, B) \
    FETCH(and_##B, T, __atomic_fetch_and, a & b) FETCH(or_##B, T, __atomic_fetch_or, a | b) \
    FETCH(xor_##B, T, __atomic_fetch_xor, a ^ b) FETCH(exch_##B, T, __atomic_exchange_n, b) \
    INLINE T sc_atom_cas_##B(u64 address, T b, T c) { \
        __atomic_compare_exchange_n((T*)address, &b, c, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); return b; } \
    INLINE T sc_own_cas_##B(u64 address, T b, T c) { T a = *(T*)address; if (a == b) *(T*)address = c; return a; }
FETCHES(u32, b32) FETCHES(u64, b64)
INLINE u16 sc_atom_cas_b16(u64 address, u16 b, u16 c) {
    __atomic_compare_exchange_n((u16*)address, &b, c, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); return b; }
INLINE u16 sc_own_cas_b16(u64 address, u16 b, u16 c) { u16 a = *(u16*)address; if (a == b) *(u16*)address = c; return a; }
#define EXTREME(T, U) ATOMIC(min_##T, T, U, a < b ? a : b) ATOMIC(max_##T, T, U, a > b ? a : b)
FETCH(add_u32, u32, __atomic_fetch_add, a + b) FETCH(add_s32, s32, __atomic_fetch_add, a + b)
FETCH(add_u64, u64, __atomic_fetch_add, a + b)
EXTREME(u32, u32) EXTREME(s32, u32) EXTREME(u64, u64) EXTREME(s64, u64)
ATOMIC(inc_u32, u32, u32, a >= b ? 0 : a + 1) ATOMIC(dec_u32, u32, u32, a == 0 || a > b ? b : a - 1)
/* In global memory the f32 form flushes subnormal numbers, in shared memory it does not. */
LOCKED(add_f32, float, u32, sc_canonical_f32(sc_ftz_f32(sc_ftz_f32(a) + sc_ftz_f32(b))))
OWN(add_f32, float, sc_canonical_f32(a + b))
ATOMIC(add_f64, double, u64, a + b)
ATOMIC(add_f16, u16, u16, sc_add_f16(a, b)) ATOMIC(add_bf16, u16, u16, sc_add_bf16(a, b))
ATOMIC(add_f16x2, u32, u32, sc_add_f16x2(a, b)) ATOMIC(add_bf16x2, u32, u32, sc_add_bf16x2(a, b))

/* An mbarrier: arrivals pending in this phase (20 bits), expected in each (20 bits), bytes that are still to come
   in this phase (21 bits, with a sign), and the phase. */
INLINE u64 sc_mbarrier_change(u64 address, u32 count, u32 drop, s32 bytes) {
    u64* barrier = (u64*)address;
    const u64 before = *barrier;
    u64 expected = (before >> 20 & 0xfffff) - drop, pending = (before & 0xfffff) - count, phase = before >> 61;
    const s64 to_come = ((s64)(before << 3) >> 43) + bytes;
    if (pending == 0 && to_come == 0) { pending = expected; ++phase; }
    *barrier = phase << 61 | ((u64)to_come & 0x1fffff) << 40 | (expected & 0xfffff) << 20 | (pending & 0xfffff);
    return before;
}
INLINE u64 sc_mbarrier_arrive(u64 address, u32 count, u32 drop) { return sc_mbarrier_change(address, count, drop, 0); }
INLINE void sc_async_copy(u64 to, u64 from, u32 bytes, u32 given) {
    u8 part[16] = {0};
    __builtin_memcpy(part, (const void*)from, given < bytes ? given : bytes);
    __builtin_memcpy((void*)to, part, bytes);
}

/* The lane that shfl reads, and whether that lies inside of its segment. */
INLINE u32 sc_shuffle_source(u32 lane, u32 mode, u32 b, u32 c, _Bool* inside) {
    u32 segment = c >> 8 & 31, clamp = c & 31, b5 = b & 31;
    u32 last = (lane & segment) | (clamp & ~segment), first = lane & segment, source;
    switch (mode) {
        case 0: source = lane - b5; *inside = (s32)source >= (s32)last; break;
        case 1: source = lane + b5; *inside = source <= last; break;
        case 2: source = lane ^ b5; *inside = source <= last; break;
        default: source = first | (b5 & ~segment); *inside = source <= last;
    }
    return *inside ? source : lane;
}
INLINE u32 sc_thread_index(struct sc_thread* t) {
    return (t->tid[2] * t->block->ntid[1] + t->tid[1]) * t->block->ntid[0] + t->tid[0];
}
)C";

}  // namespace simcuda::ptx

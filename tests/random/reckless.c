/* A policy that answers anything: what it says must cost time and nothing else. Follows from the calls alone.
 */
#include <lms/policy.h>
#include <stdlib.h>

enum { MOST_CHUNKS = 1 << 16 };
typedef struct {
    uint64_t threshold, random;
    uint32_t end;
    char on_gpu[MOST_CHUNKS];
} State;

static uint32_t below(State* s, uint32_t bound) {
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->random >> 33) % bound;
}

static void* create(const lms_policy_config* config) {
    State* s = calloc(1, sizeof *s);
    if (s) s->threshold = config->threshold_bytes;
    return s;
}
static int is_managed(void* s, uint64_t bytes) {
    return bytes >= ((State*)s)->threshold;
}
static uint64_t eviction_start(void* s, const lms_policy_pressure* p) {
    return p->budget_bytes - p->budget_bytes / 64 * below(s, 16);
}
static void added(void* s, const lms_policy_chunk* c) {
    if (c->chunk < MOST_CHUNKS && c->chunk >= ((State*)s)->end) ((State*)s)->end = c->chunk + 1;
}
static void resident(void* s, uint32_t c) {
    if (c < MOST_CHUNKS) ((State*)s)->on_gpu[c] = 1;
}
static void evicted(void* s, uint32_t c) {
    if (c < MOST_CHUNKS) ((State*)s)->on_gpu[c] = 0;
}
static uint32_t next_victim(void* state, const lms_policy_request* r) {
    State* s = state;
    const uint32_t from = s->end ? below(s, s->end) : 0;
    if (below(s, 8) == 0) return below(s, 4) ? LMS_NO_CHUNK : below(s, MOST_CHUNKS);
    for (uint32_t i = 0; i < s->end; ++i) {
        const uint32_t c = (from + i) % s->end;
        if (r->eligible(r->context, c)) return c;
    }
    return LMS_NO_CHUNK;
}
static void work(void* s, const lms_policy_work* w) {
    ((State*)s)->random += w->count;
}
static uint32_t upcoming(void* state, uint32_t* chunks, uint32_t most) {
    State* s = state;
    uint32_t count = 0;
    for (uint32_t i = 0; s->end && i < 16 && count < most; ++i) {
        const uint32_t c = below(s, s->end);
        if (!s->on_gpu[c] || below(s, 16) == 0) chunks[count++] = c;
    }
    return below(s, 4) ? count : 0;
}
static uint32_t leaving(void* state, const lms_policy_request* r) {
    return below(state, 4) ? LMS_NO_CHUNK : next_victim(state, r);
}

static const lms_policy table = {
    .size = sizeof table,
    .abi_version = LMS_POLICY_ABI_VERSION,
    .name = "reckless",
    .create = create,
    .destroy = free,
    .is_managed = is_managed,
    .eviction_start = eviction_start,
    .added = added,
    .removed = evicted,
    .resident = resident,
    .evicted = evicted,
    .next_victim = next_victim,
    .work = work,
    .upcoming = upcoming,
    .leaving = leaving,
};
const lms_policy* lms_policy_get(uint32_t version) {
    return version == LMS_POLICY_ABI_VERSION ? &table : NULL;
}

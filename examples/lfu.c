/* A policy: the chunk that was used least often goes first.
 *
 *   cc -O2 -shared -fPIC -I$HOME/.local/include -o lfu.so lfu.c     (where make install put the header)
 *   lms run --policy ./lfu.so --log info -- ./program
 */
#include <lms/policy.h>
#include <stdlib.h>

enum { MOST_CHUNKS = 1 << 20 };
typedef struct {
    uint64_t threshold, uses[MOST_CHUNKS];
    uint32_t end;
    char on_gpu[MOST_CHUNKS];
} State;

static void* create(const lms_policy_config* config) {
    State* s = calloc(1, sizeof *s);
    if (s) s->threshold = config->threshold_bytes;
    return s;
}
static int is_managed(void* s, uint64_t bytes) {
    return bytes >= ((State*)s)->threshold;
}
static uint64_t eviction_start(void* s, const lms_policy_pressure* p) {
    (void)s;
    return p->budget_bytes;
}
static void added(void* s, const lms_policy_chunk* c) {
    if (c->chunk >= MOST_CHUNKS) return; /* still managed; the shim evicts it when nothing else is left */
    ((State*)s)->uses[c->chunk] = 0;
    if (c->chunk >= ((State*)s)->end) ((State*)s)->end = c->chunk + 1;
}
static void used(void* s, const lms_policy_use* u) {
    if (u->chunk < MOST_CHUNKS) ++((State*)s)->uses[u->chunk];
}
static void resident(void* s, uint32_t c) {
    if (c < MOST_CHUNKS) ((State*)s)->on_gpu[c] = 1;
}
static void evicted(void* s, uint32_t c) {
    if (c < MOST_CHUNKS) ((State*)s)->on_gpu[c] = 0;
}
static uint32_t next_victim(void* state, const lms_policy_request* r) {
    State* s = state;
    uint32_t best = LMS_NO_CHUNK;
    for (uint32_t c = 0; c < s->end; ++c)
        if (s->on_gpu[c] && (best == LMS_NO_CHUNK || s->uses[c] < s->uses[best]) &&
            r->eligible(r->context, c))
            best = c;
    return best;
}
static const lms_policy table = {sizeof table,   LMS_POLICY_ABI_VERSION,
                                 "lfu",          create,
                                 free,           is_managed,
                                 eviction_start, added,
                                 evicted,        used,
                                 resident,       evicted,
                                 next_victim};
const lms_policy* lms_policy_get(uint32_t version) {
    return version == LMS_POLICY_ABI_VERSION ? &table : NULL;
}

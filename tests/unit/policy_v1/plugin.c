/* A plugin as it was written against the first header of version 1, which is kept beside it: oldest first. */
#include <lms/policy.h>
#include <stdlib.h>

enum { MOST = 64 };
typedef struct {
    uint64_t threshold, since[MOST], clock;
    char on_gpu[MOST];
} State;

static void* create(const lms_policy_config* config) {
    State* s = config->size >= sizeof *config && config->frac < 0 ? calloc(1, sizeof *s) : NULL;
    if (s) s->threshold = config->threshold_bytes;
    return s;
}
static int is_managed(void* s, uint64_t bytes) { return bytes >= ((State*)s)->threshold; }
static uint64_t eviction_start(void* s, const lms_policy_pressure* p) {
    (void)s;
    return p->allocated_bytes > p->budget_bytes ? p->budget_bytes / 2 : p->budget_bytes;
}
static void added(void* s, const lms_policy_chunk* c) { ((State*)s)->on_gpu[c->chunk] = 0; }
static void removed(void* s, uint32_t c) { ((State*)s)->on_gpu[c] = 0; }
static void resident(void* state, uint32_t c) {
    State* s = state;
    s->on_gpu[c] = 1;
    s->since[c] = ++s->clock;
}
static uint32_t next_victim(void* state, const lms_policy_request* r) {
    State* s = state;
    uint32_t best = LMS_NO_CHUNK;
    for (uint32_t c = 0; c < MOST; ++c)
        if (s->on_gpu[c] && (best == LMS_NO_CHUNK || s->since[c] < s->since[best]) && r->eligible(r->context, c)) best = c;
    return best;
}
static const lms_policy table = {sizeof table, LMS_POLICY_ABI_VERSION, "oldest", create, free,
                                 is_managed, eviction_start, added, removed, NULL, resident, removed,
                                 next_victim};
const lms_policy* lms_policy_get(uint32_t version) { return version == LMS_POLICY_ABI_VERSION ? &table : NULL; }

#include "recorder.h"

#include <string.h>
#include <time.h>

LMS_PLUGIN_EXPORT recorder the_recorder;

static void called(enum recorder_function function) {
    const unsigned ms = the_recorder.sleep_ms[function];
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    ++the_recorder.calls[function];
    the_recorder.sleep_ms[function] = 0;
    if (ms) nanosleep(&time, NULL);
}

static void* create(const lms_policy_config* config) {
    (void)config;
    return &the_recorder;
}
static void destroy(void* s) {
    (void)s;
}
static int is_managed(void* s, uint64_t bytes) {
    (void)s;
    return bytes > 0;
}
static uint64_t eviction_start(void* s, const lms_policy_pressure* p) {
    (void)s;
    return p->budget_bytes;
}
static void added(void* s, const lms_policy_chunk* chunk) {
    (void)s;
    the_recorder.chunks[chunk->chunk] = *chunk;
}
static void removed(void* s, uint32_t chunk) {
    (void)s;
    the_recorder.chunks[chunk].bytes = the_recorder.since[chunk] = 0;
}
static void resident(void* s, uint32_t chunk) {
    (void)s;
    the_recorder.since[chunk] = ++the_recorder.clock;
}
static void evicted(void* s, uint32_t chunk) {
    (void)s;
    the_recorder.since[chunk] = 0;
}
static uint32_t next_victim(void* s, const lms_policy_request* request) {
    (void)s;
    uint32_t oldest = LMS_NO_CHUNK;
    called(RECORDER_VICTIM);
    if (the_recorder.asked) the_recorder.asked(request);
    if (the_recorder.answer == RECORDER_NONE) return LMS_NO_CHUNK;
    for (uint32_t c = 0; c < RECORDER_CHUNKS; ++c) {
        if (the_recorder.answer == RECORDER_ABSENT && the_recorder.chunks[c].bytes && !the_recorder.since[c])
            return c;
        if (the_recorder.since[c] &&
            (oldest == LMS_NO_CHUNK || the_recorder.since[c] < the_recorder.since[oldest]) &&
            request->eligible(request->context, c))
            oldest = c;
    }
    return oldest;
}
static void work(void* s, const lms_policy_work* work) {
    (void)s;
    called(RECORDER_WORK);
    the_recorder.work = *work;
    memcpy(the_recorder.named, work->chunks, work->count * sizeof *work->chunks);
    memcpy(the_recorder.access, work->access, work->count);
}
static uint32_t upcoming(void* s, uint32_t* chunks, uint32_t most) {
    (void)s;
    (void)chunks;
    (void)most;
    called(RECORDER_UPCOMING);
    return 0;
}

static const lms_policy table = {
    .size = sizeof table,
    .abi_version = LMS_POLICY_ABI_VERSION,
    .name = "recorder",
    .create = create,
    .destroy = destroy,
    .is_managed = is_managed,
    .eviction_start = eviction_start,
    .added = added,
    .removed = removed,
    .resident = resident,
    .evicted = evicted,
    .next_victim = next_victim,
    .work = work,
    .upcoming = upcoming,
};
const lms_policy* lms_policy_get(uint32_t version) {
    return version == LMS_POLICY_ABI_VERSION ? &table : NULL;
}

/* What a program that knows of lmsshim may ask of it, and tell it. Nothing has to be linked: each function
 * here looks once for a shim in the process, and answers LMS_ABSENT where there is none. So a program that
 * uses them runs with the shim and without it.
 *
 *   if (lms_pin(weights, 0) == LMS_NO_ROOM) ...
 *
 * Answers are LMS_OK or what was wrong; nothing is thrown, and nothing is changed by a call that fails,
 * unless it says so. Sizes are bytes, times nanoseconds. Memory is named by an address on the GPU (a
 * CUdeviceptr, cast) and a size that must lie within one buffer; size 0 means the whole buffer that the
 * address lies in. What moves is chunks: a part of a buffer stands for all chunks that it touches.
 *
 * Any thread may call, also several at once, with any context current or none, and while work is captured
 * into a graph. In a host function of a stream, and where the GPU has no context, what would have to ask the
 * driver answers LMS_NOT_NOW. Calls that move memory wait for copies of the shim's own, and a second at most
 * for work of the program's.
 *
 * Growing: a struct that is filled starts with its size as the program knows it, and only ever gets longer.
 */
#ifndef LMS_LMS_H
#define LMS_LMS_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LMS_API_VERSION 1u

#define LMS_OK 0
#define LMS_ABSENT 1      /* there is no shim in this process, or one that is too old */
#define LMS_INVALID 2     /* an argument: null, of the wrong size, or beyond the end of the buffer */
#define LMS_NOT_MANAGED 3 /* not the shim's memory: small, freed, or the driver's. It never moves */
#define LMS_NO_ROOM 4     /* more than can be on the GPU, or than the host has memory for */
#define LMS_BUSY 5        /* unfinished work uses it */
#define LMS_NOT_NOW 6     /* in a host function, or without a context */
#define LMS_FAILED 7      /* the driver refused, or there was no memory to note it in */

/* Of the process, over all GPUs, since it began: as LMS_STATS has them (docs/reference/counters.md). */
typedef struct lms_counters {
    uint32_t size; /* sizeof(lms_counters), set by the caller */
    uint32_t reserved;
    uint64_t allocations;
    uint64_t frees;
    uint64_t refusals;
    uint64_t launches;
    uint64_t in_place_launches;
    uint64_t fills;
    uint64_t fills_ahead;
    uint64_t bytes_in;
    uint64_t evictions;
    uint64_t bytes_out;
    uint64_t peak_resident_bytes;
    uint64_t peak_host_bytes;
    uint64_t stalls;
    uint64_t stall_ns;
    uint64_t self_checks;
    uint64_t self_checks_failed;
    uint64_t self_check_ns;
    uint64_t self_checks_remaps_wait;
    uint64_t victims_overruled;
} lms_counters;

/* Of one GPU. */
typedef struct lms_levels {
    uint32_t size; /* sizeof(lms_levels), set by the caller */
    uint32_t reserved;
    uint64_t budget_bytes; /* that managed buffers may take of it */
    uint64_t allocated_bytes;
    uint64_t peak_allocated_bytes;
    uint64_t most_beyond_bytes; /* the budget */
    uint64_t resident_bytes;    /* on the GPU */
    uint64_t host_bytes;        /* on the host */
    uint64_t in_bytes_per_s;    /* as copies to it were last seen to go; 0: none was */
    uint64_t out_bytes_per_s;   /* to the host */
} lms_levels;

/* A buffer, where the program has it. Memory that it maps itself counts once for each mapping. */
typedef struct lms_buffer {
    uint64_t address;
    uint64_t bytes;          /* of its chunks: what was asked for, rounded up */
    uint64_t resident_bytes; /* of them, on the GPU */
    uint64_t pinned_bytes;   /* of these, kept there by lms_pin */
    int32_t device;          /* CUDA ordinal */
    uint32_t reserved;
} lms_buffer;

/* What the shim exports: one function that gives this table. The functions below call it. */
typedef struct lms_api {
    uint32_t size; /* sizeof(lms_api), as the shim knows it */
    uint32_t version;
    int (*counters)(lms_counters* counters);
    int (*levels)(int device, lms_levels* levels);
    int (*snapshot)(lms_buffer* buffers, size_t buffer_size, size_t* count);
    int (*pin)(const void* address, size_t bytes);
    int (*unpin)(const void* address, size_t bytes);
    int (*prefetch)(const void* address, size_t bytes);
    int (*evict)(const void* address, size_t bytes);
    int (*limit)(uint64_t bytes);
    int (*pause)(void);
    int (*resume)(void);
    int (*region_begin)(const char* name);
    int (*region_end)(void);
} lms_api;

const lms_api* lms_api_get(uint32_t version); /* null: does not speak that version */

/* The shim's table, or null. */
static inline const lms_api* lms_loaded(void) {
    static const lms_api* loaded;
    static int looked;
    if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
        const lms_api* (*get)(uint32_t);
        *(void**)(&get) = dlsym(NULL, "lms_api_get"); /* RTLD_DEFAULT, which C has in GNU mode alone */
        /* Threads that look at once find the same. */
        __atomic_store_n(&loaded, get ? get(LMS_API_VERSION) : NULL, __ATOMIC_RELAXED);
        __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&loaded, __ATOMIC_RELAXED);
}

#define LMS_CALL_(function, ...)                                                       \
    (lms_loaded() && lms_loaded()->size >= offsetof(lms_api, function) + sizeof(void*) \
         ? lms_loaded()->function __VA_ARGS__                                          \
         : LMS_ABSENT)

/* What has happened so far. Costs no more than reading it; also in a host function. */
static inline int lms_get_counters(lms_counters* counters) {
    return LMS_CALL_(counters, (counters));
}
/* LMS_NOT_MANAGED: there is no managed memory on that GPU. */
static inline int lms_get_levels(int device, lms_levels* levels) {
    return LMS_CALL_(levels, (device, levels));
}

/* Where all buffers are at this moment: writes *count of them at most, and to *count how many there are.
 * `buffers` may be null if *count is 0. */
static inline int lms_snapshot(lms_buffer* buffers, size_t* count) {
    return LMS_CALL_(snapshot, (buffers, sizeof(lms_buffer), count));
}

/* Brings memory in and keeps it on the GPU until lms_unpin() of the same address and size, or its free. Pins
 * count. LMS_NO_ROOM if all pins together would leave less than two of the largest chunks of the budget.
 * Work comes first: pins end, all of the GPU's and with a line in the log, for work that cannot run beside
 * them. That is a graph whose copies and sets find no room (their memory stays on the GPU while the graph
 * exists), memory that is exported, and, where evicted memory cannot be reached (LMS_HOST_MAPPING), any
 * launch. What fits beside the pins ends none, in whatever order they are made. */
static inline int lms_pin(const void* address, size_t bytes) {
    return LMS_CALL_(pin, (address, bytes));
}
/* LMS_INVALID: there is no such pin, or not any more. */
static inline int lms_unpin(const void* address, size_t bytes) {
    return LMS_CALL_(unpin, (address, bytes));
}

/* Brings memory in, which then moves like any other. The copies are not waited for. What was brought in
 * before the room ran out stays. */
static inline int lms_prefetch(const void* address, size_t bytes) {
    return LMS_CALL_(prefetch, (address, bytes));
}
/* Copies memory out and frees its place, for what is needed sooner. LMS_BUSY: some of it stays, for
 * unfinished work uses it, or it is kept. From the first call on the shim looks at all work. */
static inline int lms_evict(const void* address, size_t bytes) {
    return LMS_CALL_(evict, (address, bytes));
}

/* Managed memory takes no more than `bytes` of each GPU from now on; 0: what it could before. What is beyond
 * goes out now, and what unfinished work uses with the next work. It never goes below what must stay for the
 * host has no memory for more. Also before the first allocation. */
static inline int lms_limit(uint64_t bytes) {
    return LMS_CALL_(limit, (bytes));
}

/* Gives the GPU to others: all that is idle goes to the host, and its memory to the driver. LMS_BUSY: some
 * stays. Work that is submitted brings in what it needs as always. */
static inline int lms_pause(void) {
    return LMS_CALL_(pause, ());
}
/* Brings back what the last lms_pause() moved out, as far as there is room. */
static inline int lms_resume(void) {
    return LMS_CALL_(resume, ());
}

/* Names what the thread does from here to the end of the region, in the trace (LMS_TRACE) and what is made of
 * it. Regions nest. A name longer than 63 bytes is cut, one beyond the 64th level is passed over. */
static inline int lms_region_begin(const char* name) {
    return LMS_CALL_(region_begin, (name));
}
/* LMS_INVALID: none has begun in this thread. */
static inline int lms_region_end(void) {
    return LMS_CALL_(region_end, ());
}

#undef LMS_CALL_

#ifdef __cplusplus
}
#endif

#endif

/* The interface for programs that know lmsshim. Nothing has to be linked: each function looks once for a shim
 * in the process and answers LMS_ABSENT if there is none. So a program that uses them runs with the shim and
 * without it.
 *
 *   if (lms_pin(weights, 0) == LMS_NO_ROOM) ...
 *
 * Answers are LMS_OK or an error below. A call that fails changes nothing, unless it says so, and nothing is
 * thrown. Sizes are bytes, times nanoseconds. Memory is a GPU address (a CUdeviceptr, cast) and a size, which
 * must lie within one buffer; size 0 means the whole buffer. Memory moves in chunks: a part of a buffer means
 * all chunks that it touches.
 *
 * Any thread may call, also several at once, with any context current or none, and during stream capture. In
 * a host function, and where the GPU has no context, calls that need the driver answer LMS_NOT_NOW. Calls
 * that move memory wait for the shim's copies, and for at most a second for the program's work.
 *
 * Growing: a struct that a call fills begins with its size, as the program knows it, and only gets longer.
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
#define LMS_INVALID 2     /* an argument is null, of the wrong size, or beyond the end of the buffer */
#define LMS_NOT_MANAGED 3 /* small, freed, or the driver's memory; it never moves */
#define LMS_NO_ROOM 4     /* more than the GPU can hold, or than the host has memory for */
#define LMS_BUSY 5        /* unfinished work uses it */
#define LMS_NOT_NOW 6     /* in a host function, or without a context */
#define LMS_FAILED 7      /* the driver refused, or the process has no memory left */

/* The counters of the process, over all GPUs, since it began (docs/reference/counters.md). */
typedef struct lms_counters {
    uint32_t size; /* sizeof(lms_counters), set by the caller */
    uint32_t reserved;
#define LMS_COUNTER(name, meaning) uint64_t name;
#include "counters.def"
} lms_counters;

/* The levels of one GPU. */
typedef struct lms_levels {
    uint32_t size; /* sizeof(lms_levels), set by the caller */
    uint32_t reserved;
    uint64_t budget_bytes; /* GPU memory that managed buffers may take */
    uint64_t allocated_bytes;
    uint64_t peak_allocated_bytes;
    uint64_t most_beyond_bytes; /* by how much they exceeded the budget at most */
    uint64_t resident_bytes;    /* on the GPU */
    uint64_t host_bytes;        /* on the host */
    uint64_t in_bytes_per_s;    /* of copies to the GPU, as last measured; 0: never */
    uint64_t out_bytes_per_s;   /* to the host */
    uint64_t turn_wait_ns;      /* that threads waited for turns on a GPU that other processes use too */
    uint64_t granted_bytes;     /* what it may take of such a GPU; 0: no other process uses it */
    uint64_t least_granted_bytes;
} lms_levels;

/* A buffer at the program's address. Memory that the program maps itself counts once for each mapping. */
typedef struct lms_buffer {
    uint64_t address;
    uint64_t bytes;          /* of its chunks: the allocation's size, rounded up */
    uint64_t resident_bytes; /* of them, on the GPU */
    uint64_t pinned_bytes;   /* of these, kept there by lms_pin */
    int32_t device;          /* CUDA ordinal */
    uint32_t reserved;
} lms_buffer;

/* The shim's table, which lms_api_get returns. The functions below call through it. */
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

const lms_api* lms_api_get(uint32_t version); /* null: it does not support that version */

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

/* The counters up to now. Costs no more than reading them; also allowed in a host function. */
static inline int lms_get_counters(lms_counters* counters) {
    return LMS_CALL_(counters, (counters));
}
/* LMS_NOT_MANAGED: there is no managed memory on that GPU. */
static inline int lms_get_levels(int device, lms_levels* levels) {
    return LMS_CALL_(levels, (device, levels));
}

/* Where all buffers are now: writes at most *count of them, and to *count how many there are. `buffers` may
 * be null if *count is 0. */
static inline int lms_snapshot(lms_buffer* buffers, size_t* count) {
    return LMS_CALL_(snapshot, (buffers, sizeof(lms_buffer), count));
}

/* Brings memory in and keeps it on the GPU until lms_unpin() of the same address and size, or its free. Pins
 * of the same memory add up. LMS_NO_ROOM if all pins together would leave less than two of the largest chunks
 * of the budget.
 *
 * Work comes first: for work that cannot run beside the pins, all pins of the GPU end, with a line in the
 * log. Such work is a graph whose copies and sets find no room, memory that is exported, and, if evicted
 * memory cannot be reached (LMS_HOST_MAPPING), any launch. Work that fits beside the pins ends none. */
static inline int lms_pin(const void* address, size_t bytes) {
    return LMS_CALL_(pin, (address, bytes));
}
/* LMS_INVALID: there is no such pin. */
static inline int lms_unpin(const void* address, size_t bytes) {
    return LMS_CALL_(unpin, (address, bytes));
}

/* Brings memory in, without waiting for the copies; then it moves like any other. After LMS_NO_ROOM the
 * chunks that found room stay. */
static inline int lms_prefetch(const void* address, size_t bytes) {
    return LMS_CALL_(prefetch, (address, bytes));
}
/* Copies memory out and frees its place on the GPU. LMS_BUSY: some of it stays, because unfinished work uses
 * it or it is pinned. From the first call on the shim scans all work. */
static inline int lms_evict(const void* address, size_t bytes) {
    return LMS_CALL_(evict, (address, bytes));
}

/* Managed memory takes at most `bytes` of each GPU from now on; 0: no such limit. Memory beyond it is evicted
 * now; memory that unfinished work uses, with the next work. Memory that the host has no room for stays. May
 * be called before the first allocation. */
static inline int lms_limit(uint64_t bytes) {
    return LMS_CALL_(limit, (bytes));
}

/* Frees the GPU for other programs: evicts all idle memory and gives it to the driver. LMS_BUSY: some stays.
 * Work that is submitted later brings in what it needs. */
static inline int lms_pause(void) {
    return LMS_CALL_(pause, ());
}
/* Brings back the memory that the last lms_pause() evicted, as far as there is room. */
static inline int lms_resume(void) {
    return LMS_CALL_(resume, ());
}

/* Begins a region of the thread's work, named in the trace (LMS_TRACE) and its reports. Regions nest. A name
 * is cut after 63 bytes; regions beyond the 64th level are ignored. */
static inline int lms_region_begin(const char* name) {
    return LMS_CALL_(region_begin, (name));
}
/* LMS_INVALID: no region has begun in this thread. */
static inline int lms_region_end(void) {
    return LMS_CALL_(region_end, ());
}

#undef LMS_CALL_

#ifdef __cplusplus
}
#endif

#endif

/* The interface between lmsshim and a policy: what is managed, when eviction begins, which chunk is evicted.
 *
 * A policy is a table of C functions, built in or exported by a plugin (LMS_POLICY=/path/to/plugin.so)
 * through lms_policy_get(). It keeps its own order of the chunks that the events below report. Its decisions
 * follow from these events alone, so that a replay of a trace decides alike. It runs inside a program that is
 * not its own: it calls no CUDA, reads no clock and no environment, starts no threads, and neither exits nor
 * throws (an exception would end the program).
 *
 * Growing: each struct begins with its size, as the side that fills it knows it, and only gets longer. The
 * other side reads a field only if that size covers it. LMS_POLICY_ABI_VERSION changes only when something
 * here stops being true.
 */
#ifndef LMS_POLICY_H
#define LMS_POLICY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LMS_POLICY_ABI_VERSION 1u

/* Keeps lms_policy_get visible in a plugin built with hidden symbols. */
#define LMS_PLUGIN_EXPORT __attribute__((visibility("default")))

/* The answer of next_victim that stands for no chunk. */
#define LMS_NO_CHUNK UINT32_MAX

/* One option of LMS_POLICY=name,key=value,... */
typedef struct lms_policy_option {
    const char* key; /* one of lms_policy.keys */
    const char* value;
} lms_policy_option;

/* What a policy is created with. */
typedef struct lms_policy_config {
    uint32_t size; /* sizeof(lms_policy_config), as lmsshim knows it */
    uint32_t reserved;
    uint64_t threshold_bytes;         /* LMS_THRESHOLD */
    double frac;                      /* LMS_FRAC, 0 to 1; negative when unset */
    const lms_policy_option* options; /* in the user's order */
    uint64_t option_count;
} lms_policy_config;

/* The unit that moves. Numbers are small and reused after `removed`, so they can index arrays. */
typedef struct lms_policy_chunk {
    uint32_t size; /* sizeof(lms_policy_chunk) */
    uint32_t chunk;
    uint32_t allocation; /* that it is part of; numbered like chunks */
    uint32_t reserved;
    uint64_t bytes;
    /* Added since. Memory that the program maps itself has an address here that stands for it alone. */
    uint64_t address; /* on the device, for as long as the chunk lives */
    uint64_t offset;  /* in its allocation */
    /* Added since. */
    uint64_t allocation_bytes; /* of all chunks of its allocation, which are added one behind the other, by
                                  offset */
} lms_policy_chunk;

/* A launch or copy names a chunk. It need not be on the device: it may be about to come in. */
typedef struct lms_policy_use {
    uint32_t size; /* sizeof(lms_policy_use) */
    uint32_t chunk;
    uint64_t sequence; /* counts the uses of all chunks of the device, from 1 */
} lms_policy_use;

/* How work touches a chunk. READ or WRITTEN: if it touches the chunk, it does that alone, for certain.
 * UNKNOWN: it may do either or both. WHOLE is added where it touches every byte, for certain. */
#define LMS_ACCESS_UNKNOWN 0u
#define LMS_ACCESS_READ 1u
#define LMS_ACCESS_WRITTEN 2u
#define LMS_ACCESS_WHOLE 4u

/* A piece of work (a kernel, copy, set or graph launch) and the chunks that it names, each once, in the order
 * of its arguments. `used` follows for each. */
typedef struct lms_policy_work {
    uint32_t size;  /* sizeof(lms_policy_work) */
    uint32_t count; /* of chunks, at least 1 */
    const uint32_t* chunks;
    /* Added since. */
    uint64_t stream;       /* identifies the stream while it exists */
    uint64_t code;         /* identifies the kernel or executable graph while it is loaded; 0: neither */
    const uint8_t* access; /* LMS_ACCESS_... of each chunk; null: not known */
} lms_policy_work;

/* How full the device is. */
typedef struct lms_policy_pressure {
    uint32_t size; /* sizeof(lms_policy_pressure) */
    uint32_t reserved;
    uint64_t budget_bytes;    /* device memory that managed chunks may fill */
    uint64_t allocated_bytes; /* all managed memory, wherever it is */
} lms_policy_pressure;

/* A chunk that may be evicted. */
typedef struct lms_policy_candidate {
    uint32_t size;  /* sizeof(lms_policy_candidate), set by the policy */
    uint32_t clean; /* non-zero: the host has the same contents, so eviction needs no copy */
    uint64_t bytes;
    uint64_t idle_in_ns; /* until no unfinished work uses it; 0: now; or LMS_NOT_KNOWN */
} lms_policy_candidate;
#define LMS_NOT_KNOWN UINT64_MAX

/* The queues of copies between device and host, and their measured speeds. */
typedef struct lms_policy_links {
    uint32_t size; /* sizeof(lms_policy_links), set by the policy */
    uint32_t reserved;
    uint64_t queued_in_bytes; /* of chunks; submitted, and not known to be complete */
    uint64_t queued_out_bytes;
    uint64_t in_bytes_per_s; /* 0: not measured yet */
    uint64_t out_bytes_per_s;
    /* Added since. */
    uint64_t works_since_wait; /* submitted since the GPU had nothing to run for want of copies in;
                                  or LMS_NOT_KNOWN: it always had some */
} lms_policy_links;

/* What a victim is for. */
#define LMS_PURPOSE_ROOM 0u     /* room for a chunk that work needs now, or very soon */
#define LMS_PURPOSE_WAIT 1u     /* no chunk is idle: the chunk whose work to wait for, then to evict */
#define LMS_PURPOSE_AHEAD 2u    /* room to prefetch `sooner`: a chunk that is needed later than it, or none */
#define LMS_PURPOSE_FORETOLD 3u /* room that work will need; asked of `leaving` alone */

/* A request for a victim. eligible(context, chunk) answers non-zero if the chunk may be evicted now
 * (LMS_PURPOSE_WAIT: may be waited for). */
typedef struct lms_policy_request {
    uint32_t size;       /* sizeof(lms_policy_request) */
    uint32_t purpose;    /* LMS_PURPOSE_...; LMS_PURPOSE_AHEAD only to policies with `upcoming` */
    uint64_t need_bytes; /* at least 1 */
    int (*eligible)(void* context, uint32_t chunk);
    void* context;
    uint32_t sooner; /* LMS_PURPOSE_AHEAD: the chunk that would come in */
    uint32_t reserved;
    /* Added since. Queries about a chunk, eligible or not, and about the copies. Both take `context`. They
     * answer non-zero and fill the struct, or zero: there is no such chunk, or nothing is known. */
    int (*candidate)(void* context, uint32_t chunk, lms_policy_candidate* candidate);
    int (*links)(void* context, lms_policy_links* links);
} lms_policy_request;

/* The table of a policy. There is one state for each device, and one more for is_managed alone, before there
 * is a device. Unless said otherwise:
 * - calls come from any thread; those on one state never overlap;
 * - every launch on the device waits for a call, so it must not block;
 * - the events (added to evicted) may be null; the other functions may not;
 * - structs, and what they point to, are the caller's, and valid during the call alone. */
typedef struct lms_policy {
    uint32_t size;        /* sizeof(lms_policy), as the policy knows it */
    uint32_t abi_version; /* LMS_POLICY_ABI_VERSION, as the policy knows it */
    const char* name;

    void* (*create)(const lms_policy_config* config); /* null: it cannot be used, and lru replaces it */
    void (*destroy)(void* state);                     /* not called when the process ends */

    /* Non-zero: an allocation of `bytes` is managed; zero: it goes to the real allocator and never moves.
     * Called from any thread, also beside every other call. */
    int (*is_managed)(void* state, uint64_t bytes);

    /* Bytes of chunks on the device above which eviction may begin; more than the budget means the budget. */
    uint64_t (*eviction_start)(void* state, const lms_policy_pressure* pressure);

    /* Events. A chunk is on the device from `resident` to `evicted` or `removed`, and not when added. */
    void (*added)(void* state, const lms_policy_chunk* chunk);
    void (*removed)(void* state, uint32_t chunk);
    void (*used)(void* state, const lms_policy_use* use);
    void (*resident)(void* state, uint32_t chunk);
    void (*evicted)(void* state, uint32_t chunk);

    /* The chunk to evict next: one for which the request's eligible() answers non-zero, or LMS_NO_CHUNK. It
     * is called again, without an event in between, until the chosen chunks make up need_bytes; a chosen
     * chunk is not eligible any more. `evicted` follows when its copy is complete, or never, if work uses it
     * first. If the answer is not eligible, or no chunk while some chunk is eligible, the shim takes the
     * choice of lru; for LMS_PURPOSE_AHEAD it evicts none.
     *
     * A call of this function, of `work`, `upcoming` or `leaving` may take 10 ms. Time beyond that adds up,
     * and shorter calls pay it back. At more than a second lru replaces the policy, on all devices; then only
     * is_managed and destroy of this table are called. */
    uint32_t (*next_victim)(void* state, const lms_policy_request* request);

    /* Each of the following may be null, or missing from an older table. */

    /* Event: a piece of work is about to be submitted. Its chunks need not be on the device yet. */
    void (*work)(void* state, const lms_policy_work* work);

    /* Writes to `chunks` the chunks that work will name next and that are not on the device, soonest first.
     * Writes at most `most` and returns how many. They are brought in when there is nothing else to do. */
    uint32_t (*upcoming)(void* state, uint32_t* chunks, uint32_t most);

    /* The keys of the options that `create` reads, ended by null. For another key the user gets one line, and
     * lru replaces the policy. `create` refuses a value that it does not understand. */
    const char* const* keys;

    /* Event: the program has freed the chunk. No work names it again, and it is never eligible. `removed`
     * follows when its stream has reached the free. */
    void (*freed)(void* state, uint32_t chunk);

    /* The chunk to evict now, although no chunk needs its room yet: the program is foretold to have more in
     * use than the device holds before the chunk is needed. Answers like next_victim, or LMS_NO_CHUNK if none
     * is to go. It is asked when there is nothing else to do, and few copies out are left to make. */
    uint32_t (*leaving)(void* state, const lms_policy_request* request);
} lms_policy;

/* The export of a plugin: its table, which must stay valid while the process lives; null if it does not
 * support that version. */
LMS_PLUGIN_EXPORT const lms_policy* lms_policy_get(uint32_t abi_version);

#ifdef __cplusplus
}
#endif

#endif

/* The interface between lmsshim and a policy: what is managed, when eviction begins, what goes first.
 *
 * A policy is a table of C functions, built in or exported by a plugin (LMS_POLICY=/path/to/plugin.so)
 * through lms_policy_get(). It keeps its own order of the chunks it is told about. It must not call CUDA,
 * read a clock or the environment, start threads, throw (nobody catches) or exit: what it decides follows
 * from what it is told, and it is a guest in somebody else's program.
 *
 * Growing: a struct starts with its size as its maker knows it, and only ever gets longer; whoever reads a
 * field checks that the size covers it. LMS_POLICY_ABI_VERSION changes only when what is here stops being
 * true.
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

/* "No chunk", as an answer of next_victim. */
#define LMS_NO_CHUNK UINT32_MAX

/* Of LMS_POLICY=name,key=value,... */
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

/* The unit that moves. Numbers are small and given again after removal, so they may index arrays. */
typedef struct lms_policy_chunk {
    uint32_t size; /* sizeof(lms_policy_chunk) */
    uint32_t chunk;
    uint32_t allocation; /* the allocation it is part of; numbered like chunks */
    uint32_t reserved;
    uint64_t bytes;
    /* Added since. Memory that the program maps itself has an address here that stands for it, and that
     * nothing else ever has at the same time. */
    uint64_t address; /* on the device, for as long as the chunk lives */
    uint64_t offset;  /* in its allocation */
} lms_policy_chunk;

/* A launch or copy names a chunk, which need not be on the device: it may be about to come in. */
typedef struct lms_policy_use {
    uint32_t size; /* sizeof(lms_policy_use) */
    uint32_t chunk;
    uint64_t sequence; /* counts the uses of all chunks of the device, from 1 */
} lms_policy_use;

/* How work touches a chunk: READ or WRITTEN where it is certain to do that alone, if it touches the chunk;
 * else UNKNOWN: it may do either or both. WHOLE is added where every byte is touched for certain. */
#define LMS_ACCESS_UNKNOWN 0u
#define LMS_ACCESS_READ 1u
#define LMS_ACCESS_WRITTEN 2u
#define LMS_ACCESS_WHOLE 4u

/* A piece of work (a kernel, copy, set or graph launch) names these chunks, in the order of its arguments,
 * each once. `used` follows for each. */
typedef struct lms_policy_work {
    uint32_t size;  /* sizeof(lms_policy_work) */
    uint32_t count; /* of chunks, at least 1 */
    const uint32_t* chunks;
    /* Added since. */
    uint64_t stream; /* a number that is the stream's own for as long as it lives */
    uint64_t code;   /* the same for the same kernel or executable graph while that is loaded; 0: neither */
    const uint8_t* access; /* LMS_ACCESS_... of each chunk; null: nothing is known */
} lms_policy_work;

/* How full the device is. */
typedef struct lms_policy_pressure {
    uint32_t size; /* sizeof(lms_policy_pressure) */
    uint32_t reserved;
    uint64_t budget_bytes;    /* device memory that managed chunks may fill */
    uint64_t allocated_bytes; /* all managed memory, wherever it is */
} lms_policy_pressure;

/* A chunk that may go. */
typedef struct lms_policy_candidate {
    uint32_t size;  /* sizeof(lms_policy_candidate), set by the policy */
    uint32_t clean; /* non-zero: what is on the device is on the host too, and goes without a copy */
    uint64_t bytes;
    uint64_t idle_in_ns; /* until nothing unfinished uses it: 0 if so now, LMS_NOT_KNOWN */
} lms_policy_candidate;
#define LMS_NOT_KNOWN UINT64_MAX

/* What the copies between device and host have to do, and how fast they were seen to go. */
typedef struct lms_policy_links {
    uint32_t size; /* sizeof(lms_policy_links), set by the policy */
    uint32_t reserved;
    uint64_t queued_in_bytes; /* of chunks: begun, and not seen to be complete */
    uint64_t queued_out_bytes;
    uint64_t in_bytes_per_s; /* 0: not known yet */
    uint64_t out_bytes_per_s;
} lms_policy_links;

/* What a victim is for. */
#define LMS_PURPOSE_ROOM 0u  /* room for what work needs now, or very soon */
#define LMS_PURPOSE_WAIT 1u  /* nothing is idle: which chunk's work to wait for, to evict it then */
#define LMS_PURPOSE_AHEAD 2u /* room for `sooner`, which is foretold: what is needed later, or none */

/* What is wanted. Non-zero from eligible(context, chunk): the chunk may be evicted now (LMS_PURPOSE_WAIT: may
 * be waited for). */
typedef struct lms_policy_request {
    uint32_t size;       /* sizeof(lms_policy_request) */
    uint32_t purpose;    /* LMS_PURPOSE_...; asked for LMS_PURPOSE_AHEAD are only policies with `upcoming` */
    uint64_t need_bytes; /* at least 1 */
    int (*eligible)(void* context, uint32_t chunk);
    void* context;
    uint32_t sooner; /* LMS_PURPOSE_AHEAD: the chunk that would come in */
    uint32_t reserved;
    /* Added since. What may be asked of a chunk, eligible or not: non-zero, and it is told; zero: there is no
     * such chunk, or nothing is known. And of the copies: the same. Both with `context`. */
    int (*candidate)(void* context, uint32_t chunk, lms_policy_candidate* candidate);
    int (*links)(void* context, lms_policy_links* links);
} lms_policy_request;

/* One state per device, and one more that is only asked is_managed, before there is a device. Unless said
 * otherwise, calls on one state never overlap, come from any thread, hold up every launch on that device and
 * so must not block. The events (added to evicted) may be null if the policy does not want them; the other
 * functions may not. What structs and requests point to is valid during the call alone. */
typedef struct lms_policy {
    uint32_t size;        /* sizeof(lms_policy), as the policy knows it */
    uint32_t abi_version; /* LMS_POLICY_ABI_VERSION, as the policy knows it */
    const char* name;

    void* (*create)(const lms_policy_config* config); /* null: the policy cannot be used, and lru serves */
    void (*destroy)(void* state);                     /* not called when the process ends */

    /* Non-zero: an allocation of `bytes` is managed; zero: it goes to the real allocator and never moves.
     * Called from any thread, also beside every other call. */
    int (*is_managed)(void* state, uint64_t bytes);

    /* Bytes of chunks on the device above which eviction may begin; the budget if it is more than that. */
    uint64_t (*eviction_start)(void* state, const lms_policy_pressure* pressure);

    /* Events. A chunk is on the device from `resident` to `evicted` or `removed`, and not when added. */
    void (*added)(void* state, const lms_policy_chunk* chunk);
    void (*removed)(void* state, uint32_t chunk);
    void (*used)(void* state, const lms_policy_use* use);
    void (*resident)(void* state, uint32_t chunk);
    void (*evicted)(void* state, uint32_t chunk);

    /* The chunk to evict next: one for which the request's eligible() answers non-zero. LMS_NO_CHUNK when
     * there is none. Called again, without an event in between, until the chunks chosen make up what is
     * needed; one that was chosen is not eligible any more. `evicted` follows when its copy is complete, or
     * never, if it was used again first. If the answer is none or not eligible while some chunk is, the shim
     * takes the one that lru would (but for LMS_PURPOSE_AHEAD: then none goes).
     *
     * A call of this function, of `work` or of `upcoming` may take 10 ms. What calls take beyond that adds
     * up, what they take less is paid back; at more than a second lru decides from then on, on all devices,
     * and of this table only is_managed and destroy are called. */
    uint32_t (*next_victim)(void* state, const lms_policy_request* request);

    /* From here on everything may be null, or missing from an older table. */

    /* Event: a piece of work is about to be submitted; what it names need not be on the device yet. */
    void (*work)(void* state, const lms_policy_work* work);

    /* Writes to `chunks` which of those that are not on the device will be named next, soonest first, `most`
     * of them at the most, and returns how many. They are brought in when nothing else is to do. */
    uint32_t (*upcoming)(void* state, uint32_t* chunks, uint32_t most);

    /* The keys of the options that `create` looks at, null behind the last. A user who gives another one is
     * told so, and lru serves. A value that is not understood is `create`'s to refuse. */
    const char* const* keys;

    /* Event: the program has freed the chunk. Nothing names it again, and it is never eligible; what it takes
     * is given back when its stream has come there, and `removed` follows then. */
    void (*freed)(void* state, uint32_t chunk);
} lms_policy;

/* What a plugin exports. Returns its table, which must stay valid for the life of the process, or null if it
 * does not speak that version. */
LMS_PLUGIN_EXPORT const lms_policy* lms_policy_get(uint32_t abi_version);

#ifdef __cplusplus
}
#endif

#endif

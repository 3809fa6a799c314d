/* A plugin that notes what it is told, and answers as it is set to: its `recorder`, by dlsym. */
#ifndef LMS_TESTS_RECORDER_H
#define LMS_TESTS_RECORDER_H

#include <lms/policy.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RECORDER_CHUNKS = 256 };
enum recorder_answer { RECORDER_OLDEST, RECORDER_NONE, RECORDER_ABSENT };
enum recorder_function { RECORDER_VICTIM, RECORDER_UPCOMING, RECORDER_WORK, RECORDER_FUNCTIONS };

typedef struct recorder {
    lms_policy_chunk chunks[RECORDER_CHUNKS]; /* as added last; bytes 0: removed */
    uint64_t since[RECORDER_CHUNKS];          /* on the GPU; 0: it is not */
    uint64_t clock;
    lms_policy_work work; /* the last; its arrays are the next two */
    uint32_t named[RECORDER_CHUNKS];
    uint8_t access[RECORDER_CHUNKS];
    uint64_t calls[RECORDER_FUNCTIONS];
    unsigned sleep_ms[RECORDER_FUNCTIONS]; /* of the next call */
    enum recorder_answer answer;           /* the chunk that came in first, none, one that is not there */
    void (*asked)(const lms_policy_request* request); /* null, or called by next_victim */
} recorder;

#ifdef __cplusplus
}
#endif

#endif

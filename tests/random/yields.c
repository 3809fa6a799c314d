// Preloaded beside the shim: at seeded places where a lock is taken or has been let go, the thread makes way for others.
// The shim drops its locks around each call of the driver and the simulated driver takes its own within them, so that
// threads meet there too in orders that the machine alone hardly ever brings about. YIELDS_SEED says which.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

// What libc has under names of its own, and so without a look-up, which would come to the shim.
int __pthread_mutex_lock(pthread_mutex_t* mutex);
int __pthread_mutex_unlock(pthread_mutex_t* mutex);
int __pthread_rwlock_rdlock(pthread_rwlock_t* lock);
int __pthread_rwlock_wrlock(pthread_rwlock_t* lock);
int __pthread_rwlock_unlock(pthread_rwlock_t* lock);

// A thread keeps to one temper for a while: how rarely it yields, and for how long.
enum { kTemperLasts = 256 };
static _Thread_local uint64_t state;
static _Thread_local unsigned left;    // places until the next temper
static _Thread_local unsigned rarity;  // one place in 2^rarity
static _Thread_local unsigned length;  // at most 2^length microseconds; 0: only yields

static uint64_t seed_of_process(void) {
    const char* const text = getenv("YIELDS_SEED");
    return text ? strtoull(text, NULL, 10) : 0;
}

static uint64_t next(void) {
    if (state == 0) {
        static _Atomic uint64_t threads;
        state = (seed_of_process() * 4096 + atomic_fetch_add(&threads, 1) + 1) * 0x9E3779B97F4A7C15u;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 16;
}

static void make_way(void) {
    const uint64_t chance = next();
    if (left-- == 0) {
        left = kTemperLasts;
        rarity = 3 + chance % 6;
        length = chance / 6 % 10;
    }
    if (chance & ((1u << rarity) - 1)) return;
    const int before = errno;
    if (length == 0) {
        sched_yield();
    } else {
        const struct timespec pause = {0, (long)(1000 * ((chance >> 20) % (1u << length)))};
        nanosleep(&pause, NULL);
    }
    errno = before;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
    make_way();
    return __pthread_mutex_lock(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
    const int status = __pthread_mutex_unlock(mutex);
    make_way();
    return status;
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
    make_way();
    return __pthread_rwlock_rdlock(lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
    make_way();
    return __pthread_rwlock_wrlock(lock);
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) {
    const int status = __pthread_rwlock_unlock(lock);
    make_way();
    return status;
}

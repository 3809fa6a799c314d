// Preloaded: host memory that the shim asks for is refused, as where the process may have no more.
//
// NO_MEMORY=3-42,50: from its third allocation to its 42nd, and the 50th. NO_MEMORY_COUNT names a file that is to say at the end
// how many there were. A program may call limit_host_memory() and refuse_threads() instead.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void* __libc_malloc(size_t bytes);
extern void __libc_free(void* place);

static atomic_ulong allocations;
static atomic_uintptr_t shim_begin;
static atomic_uintptr_t shim_end;
static atomic_long live_bytes;  // that the shim has
static atomic_long most_bytes = LONG_MAX;
static atomic_int threads_refused;
static struct {
    unsigned long first;
    unsigned long last;
} refused[8];
static size_t refusals;

static int find_shim(struct dl_phdr_info* object, size_t size, void* unused) {
    (void)size;
    (void)unused;
    const char* const slash = strrchr(object->dlpi_name, '/');
    if (!slash || strcmp(slash, "/liblmsshim.so") != 0) return 0;
    uintptr_t end = object->dlpi_addr;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr)* const part = &object->dlpi_phdr[i];
        const uintptr_t last = object->dlpi_addr + part->p_vaddr + part->p_memsz;
        if (part->p_type == PT_LOAD && last > end) end = last;
    }
    atomic_store(&shim_begin, object->dlpi_addr);
    atomic_store(&shim_end, end);
    return 1;
}

__attribute__((constructor)) static void begin(void) {
    const char* const which = getenv("NO_MEMORY");
    for (const char* at = which; at && *at && refusals < 8; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const int numbers = sscanf(at, "%lu-%lu", &refused[refusals].first, &refused[refusals].last);
        if (numbers == 1) refused[refusals].last = refused[refusals].first;
        refusals += numbers > 0;
    }
    dl_iterate_phdr(find_shim, NULL);
}

__attribute__((destructor)) static void end(void) {
    const char* const path = getenv("NO_MEMORY_COUNT");
    FILE* const file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%lu\n", atomic_load(&allocations));
    fclose(file);
}

// It may have no more than `more` bytes beside what it has; all it wants where that is negative.
__attribute__((visibility("default"))) void limit_host_memory(long more) {
    atomic_store(&most_bytes, more < 0 ? LONG_MAX : atomic_load(&live_bytes) + more);
}

__attribute__((visibility("default"))) void refuse_threads(int on) {
    atomic_store(&threads_refused, on);
}

static int is_shim(const void* caller) {
    return (uintptr_t)caller >= atomic_load(&shim_begin) && (uintptr_t)caller < atomic_load(&shim_end);
}

static int is_refused(size_t bytes) {
    const unsigned long number = atomic_fetch_add(&allocations, 1) + 1;
    for (size_t i = 0; i < refusals; ++i) {
        if (number >= refused[i].first && number <= refused[i].last) return 1;
    }
    return atomic_load(&live_bytes) > atomic_load(&most_bytes) - (long)bytes;
}

void* malloc(size_t bytes) {
    if (!is_shim(__builtin_return_address(0))) return __libc_malloc(bytes);
    void* const place = is_refused(bytes) ? NULL : __libc_malloc(bytes);
    if (place)
        atomic_fetch_add(&live_bytes, (long)malloc_usable_size(place));
    else
        errno = ENOMEM;
    return place;
}

void free(void* place) {
    if (place && is_shim(__builtin_return_address(0)))
        atomic_fetch_sub(&live_bytes, (long)malloc_usable_size(place));
    __libc_free(place);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* with) {
    if (is_shim(__builtin_return_address(0)) && atomic_load(&threads_refused)) return EAGAIN;
    int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    *(void**)&create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attributes, start, with);
}

// Preloaded: host memory that the shim asks for is refused, as where the process may have no more.
//
// NO_MEMORY=3-42: from its third allocation to its 42nd. NO_MEMORY_COUNT names a file that is to say at the end
// how many there were.
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void* __libc_malloc(size_t bytes);

static atomic_ulong allocations;
static atomic_uintptr_t shim_begin;
static atomic_uintptr_t shim_end;
static unsigned long first_refused = 1;
static unsigned long last_refused = 0;

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
    if (which && sscanf(which, "%lu-%lu", &first_refused, &last_refused) == 1) last_refused = first_refused;
    dl_iterate_phdr(find_shim, NULL);
}

__attribute__((destructor)) static void end(void) {
    const char* const path = getenv("NO_MEMORY_COUNT");
    FILE* const file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%lu\n", atomic_load(&allocations));
    fclose(file);
}

void* malloc(size_t bytes) {
    const uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    if (caller >= atomic_load(&shim_begin) && caller < atomic_load(&shim_end)) {
        const unsigned long count = atomic_fetch_add(&allocations, 1) + 1;
        if (count >= first_refused && count <= last_refused) {
            errno = ENOMEM;
            return NULL;
        }
    }
    return __libc_malloc(bytes);
}

// A thin dlsym, for programs that open libcuda by a name or a path that does not lead to the shim, and for
// names that only the installed driver has.
//
// Lookups in RTLD_DEFAULT (0) and RTLD_NEXT (-1) go on to the real dlsym by a jump: glibc takes the return
// address to tell who asks, and RTLD_NEXT means "after the caller". A lookup by handle does not depend on the
// caller.

#include <dlfcn.h>

#include <atomic>

#include "shim/device/driver_table.h"
#include "shim/device/loader.h"
#include "shim/entry/interpose/exports.h"
#include "shim/entry/interpose/unseen_call.h"
#include "shim/util/log.h"

asm(R"(
        .text
        .globl  dlsym
        .type   dlsym, @function
dlsym:
        .cfi_startproc
        leaq    1(%rdi), %rax
        cmpq    $1, %rax
        ja      lms_dlsym_by_handle
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    lms_real_dlsym
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlsym, . - dlsym
)");

extern "C" __attribute__((visibility("hidden"), used)) void* lms_dlsym_by_handle(void* handle,
                                                                                 const char* name);
extern "C" __attribute__((visibility("hidden"), used)) lms::device::DlsymFunction lms_real_dlsym();

namespace lms::entry {
namespace {

void* give(const device::Row& row, void* real) {
    void* given = substitute(entry_of(row), real);
    log::debug("dlsym {}: {}", row.symbol, given == real ? "driver" : "hook");
    return given;
}

// Every driver entry point is "cu" and a capital; nobody loads a driver for cublasCreate or curs_set.
bool is_driver_name(const char* name) {
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

// What the program gets for a name looked up in the shim, which it took for the driver: what the driver has.
void* find_in_shim(void* shim, const char* name) {
    void* driver = device::driver_handle();
    // Without a driver the functions are still there; each answers that there is no device.
    if (driver == nullptr) return device::real_dlsym()(shim, name);
    void* real = device::real_dlsym()(driver, name);
    if (real == nullptr || !is_driver_name(name)) return real;
    if (const device::Row* row = device::find_row(name)) return give(*row, real);
    return trampoline_to(real, name, 0);
}

// Calls to a libcuda that is not the one behind the shim would move nothing and see half of what happens.
void name_stranger(const char* name, void* function) {
    static constinit std::atomic<bool> named{false};
    if (!log::once(named)) return;
    Dl_info info{};
    dladdr(function, &info);
    log::warn("{} comes from {}, not from the driver behind the shim, {}: the shim sees none of its calls",
              name, info.dli_fname != nullptr ? info.dli_fname : "nowhere", device::driver_path());
}

void* find_by_handle(void* handle, const char* name) {
    void* found = device::real_dlsym()(handle, name);
    if (!is_driver_name(name)) {
        // The driver's own odd names, such as its debugger's.
        return found == nullptr && handle == device::own_library() ? find_in_shim(handle, name) : found;
    }
    // A global scope has the shim's functions too.
    void* library = handle == device::own_library() ? handle : device::library_of(found);
    if (library == device::own_library()) return find_in_shim(library, name);
    if (found == nullptr) return nullptr;
    const device::Row* row = device::find_row(name);
    if (row == nullptr) {
        return library == device::driver_handle() ? trampoline_to(found, name, 0) : found;
    }
    if (found == device::driver_address(entry_of(*row))) return give(*row, found);
    if (row->action != device::Action::PASS) name_stranger(name, found);
    return found;
}

}  // namespace
}  // namespace lms::entry

lms::device::DlsymFunction lms_real_dlsym() {
    return lms::device::real_dlsym();
}

void* lms_dlsym_by_handle(void* handle, const char* name) {
    return lms::entry::find_by_handle(handle, name);
}

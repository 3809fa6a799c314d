#include "shim/device/loader.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>

namespace lms::device {

DlsymFunction real_dlsym() {
    // Racing threads find the same function, so a plain publication is enough.
    static constinit std::atomic<DlsymFunction> found{nullptr};
    if (DlsymFunction known = found.load(std::memory_order_relaxed)) return known;
    DlsymFunction function = [](void*, const char*) -> void* { return nullptr; };
    // glibc 2.34 moved dlsym from libdl to libc; 2.2.5 is its older version on x86-64, 2.17 on arm64.
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"}) {
        if (void* symbol = dlvsym(RTLD_NEXT, "dlsym", version)) {
            function = reinterpret_cast<DlsymFunction>(symbol);
            break;
        }
    }
    dlerror();
    found.store(function, std::memory_order_relaxed);
    return function;
}

void* library_of(const void* address) {
    Dl_info info;
    link_map* map = nullptr;
    // In glibc a handle is the link map's address.
    return dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 ? map : nullptr;
}

void* own_library() {
    static constinit char inside = 0;
    static constinit std::atomic<void*> own{nullptr};
    void* known = own.load(std::memory_order_relaxed);
    if (known == nullptr) own.store(known = library_of(&inside), std::memory_order_relaxed);
    return known;
}

}  // namespace lms::device

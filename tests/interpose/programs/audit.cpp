// An auditing library for the dynamic loader (LD_AUDIT, rtld-audit(7)): whoever asks for a libcuda, by name
// or by path, is given the shim, whose path is in SHIM. The shim's own search for the driver is left alone.
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {
std::uintptr_t* shim = nullptr;
}

extern "C" unsigned la_version(unsigned version) {
    return version;
}

extern "C" unsigned la_objopen(link_map* library, Lmid_t, std::uintptr_t* cookie) {
    if (std::strstr(library->l_name, "liblmsshim.so") != nullptr) shim = cookie;
    return 0;
}

extern "C" char* la_objsearch(const char* name, std::uintptr_t* asking, unsigned) {
    const char* slash = std::strrchr(name, '/');
    const bool is_libcuda = std::strncmp(slash != nullptr ? slash + 1 : name, "libcuda.so", 10) == 0;
    return is_libcuda && asking != shim ? std::getenv("SHIM") : const_cast<char*>(name);
}

// The shim's second name. Programs also open `libcuda.so`, which is no library's SONAME, and some of them
// look functions up past the hooked dlsym (a library opened with RTLD_DEEPBIND binds glibc's).
//
// The loader remembers every name under which it found a library. The shim opens itself by that name, through
// the link alias/libcuda.so beside it, to which its RPATH leads; from then on whoever opens `libcuda.so` is
// given the shim.

#include <dlfcn.h>
#include <sys/stat.h>

#include <climits>
#include <cstdio>
#include <cstring>

namespace lms::entry {
namespace {

bool is_same_file(const char* one, const char* other) {
    struct stat a {
    }, b{};
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Without the link the search would go on, and find and load the driver.
bool has_link(const char* shim) {
    const char* name = std::strrchr(shim, '/');
    if (name == nullptr) return false;
    char link[PATH_MAX];
    const int length =
        std::snprintf(link, sizeof(link), "%.*s/alias/libcuda.so", static_cast<int>(name - shim), shim);
    return length < static_cast<int>(sizeof(link)) && is_same_file(link, shim);
}

__attribute__((constructor)) void take_second_name() {
    static constinit char inside = 0;
    Dl_info self{};
    if (dladdr(&inside, &self) == 0 || !has_link(self.dli_fname)) return;
    if (void* shim = dlopen("libcuda.so", RTLD_LAZY)) dlclose(shim);  // the name stays
}

}  // namespace
}  // namespace lms::entry

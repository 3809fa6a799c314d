#include "tools/gpu_facts/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>

namespace facts {
namespace {

struct Loaded {
    void* handle = nullptr;
    Driver table{};
};

Loaded loaded;

CUresult missing() {
    return CUDA_ERROR_NOT_SUPPORTED;
}

template <class Function>
void find(Function& function, const char* symbol) {
    void* found = dlsym(loaded.handle, symbol);
    // Called through the type of what it stands for; the calling convention lets a callee ignore arguments.
    if (found == nullptr) found = reinterpret_cast<void*>(&missing);
    function = reinterpret_cast<Function>(found);
}

}  // namespace

std::string load_driver() {
    loaded.handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (loaded.handle == nullptr) return fmt::format("there is no CUDA driver here: {}", dlerror());
    if (driver_path().find("liblmsshim") != std::string::npos)
        return "the shim is preloaded; the facts are the driver's own";
#define LMS_ENTRY(symbol, base, introduced, stream, action) find(loaded.table.symbol, #symbol);
#include "shim/entry_points.def"
    return {};
}

const Driver& driver() {
    return loaded.table;
}

void* driver_handle() {
    return loaded.handle;
}

std::string driver_path() {
    const link_map* object = nullptr;
    if (dlinfo(loaded.handle, RTLD_DI_LINKMAP, &object) != 0) return {};
    std::error_code none;
    return std::filesystem::absolute(object->l_name, none);
}

std::string name_of(CUresult code) {
    const char* name = nullptr;
    if (driver().cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr)
        return fmt::format("CUresult {}", static_cast<int>(code));
    return name;
}

}  // namespace facts

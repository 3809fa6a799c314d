// Loads compiled units.
#include "tools/simcuda/ptx/native.h"

#include <dlfcn.h>
#include <unistd.h>

#include <mutex>

#include "tools/simcuda/ptx/compile.h"

namespace simcuda::ptx {

struct Unit::State {
    std::mutex mutex;
    void* handle = nullptr;
    std::string error;
};

Unit::Unit(std::string source) : source_(std::move(source)), state_(std::make_unique<State>()) {}

Unit::~Unit() {
    if (state_->handle) dlclose(state_->handle);
}

void* Unit::symbol(const std::string& name, std::string& error) {
    std::lock_guard lock(state_->mutex);
    if (!state_->handle && state_->error.empty()) {
        if (const std::string path = shipped(source_); !path.empty())
            state_->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    // Twice: another process may trim the cache entry between the two steps, or a crash have left half of it.
    for (int attempt = 0; !state_->handle && state_->error.empty() && attempt < 2; ++attempt) {
        const std::string path = compile(source_, state_->error);
        if (path.empty()) break;
        state_->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (state_->handle) break;
        if (attempt == 1) state_->error = dlerror();
        unlink(path.c_str());
    }
    if (!state_->handle) {
        error = state_->error;
        return nullptr;
    }
    return dlsym(state_->handle, name.c_str());
}

}  // namespace simcuda::ptx

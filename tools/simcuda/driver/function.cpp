#include "tools/simcuda/driver/function.h"

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/handles.h"

namespace simcuda::driver {
namespace {

Handles<Launchable>& handles() {
    static auto& handles = *new Handles<Launchable>;
    return handles;
}

}  // namespace

void register_launchable(std::shared_ptr<Launchable> launchable) {
    handles().add(std::move(launchable));
}

void forget_launchable(Launchable* launchable) {
    handles().remove(launchable);
}

std::shared_ptr<Launchable> find_launchable(CUfunction handle) {
    auto launchable = handles().find(handle);
    require(launchable != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return launchable;
}

}  // namespace simcuda::driver

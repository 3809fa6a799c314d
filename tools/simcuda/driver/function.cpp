#include "tools/simcuda/driver/function.h"

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/handles.h"

namespace simcuda::driver {
namespace {

Handles<Launchable>& launchables_by_handle() {
    static auto& launchables_by_handle = *new Handles<Launchable>;
    return launchables_by_handle;
}

}  // namespace

void register_launchable(std::shared_ptr<Launchable> launchable) {
    launchables_by_handle().add(std::move(launchable));
}

void forget_launchable(Launchable* launchable) {
    launchables_by_handle().remove(launchable);
}

std::shared_ptr<Launchable> find_launchable(CUfunction handle) {
    auto launchable = launchables_by_handle().find(handle);
    require(launchable != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return launchable;
}

}  // namespace simcuda::driver

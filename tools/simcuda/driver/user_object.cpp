#include "tools/simcuda/driver/user_object.h"

#include <thread>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/handles.h"

namespace simcuda::driver {
namespace {

Handles<UserObject>& handles() {
    static auto& handles = *new Handles<UserObject>;
    return handles;
}

}  // namespace

void UserObject::release(unsigned count) {
    if (references_.fetch_sub(count) != count) return;
    auto keep = handles().remove(this);
    std::thread([destroy = destroy_, object = object_] {
        HostFunctionScope scope;
        destroy(object);
    }).detach();
}

std::shared_ptr<UserObject> create_user_object(void* object, CUhostFn destroy, unsigned references) {
    auto created = std::make_shared<UserObject>(object, destroy, references);
    handles().add(created);
    return created;
}

std::shared_ptr<UserObject> checked_user_object(CUuserObject handle) {
    auto object = handles().find(handle);
    require(object != nullptr, CUDA_ERROR_INVALID_VALUE);
    return object;
}

}  // namespace simcuda::driver

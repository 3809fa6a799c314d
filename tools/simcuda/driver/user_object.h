// User objects: reference-counted things of the program that graphs can keep alive. What a CUuserObject
// points to.
#pragma once

#include <atomic>
#include <memory>

#include "tools/simcuda/driver/cuda_api.h"

namespace simcuda::driver {

// Thread-safe. With the last reference the program's function is called, on a thread of the driver's own, as
// CUDA promises that no caller's lock is held.
class UserObject : public std::enable_shared_from_this<UserObject> {
  public:
    UserObject(void* object, CUhostFn destroy, unsigned references)
        : object_(object), destroy_(destroy), references_(references) {}

    CUuserObject handle() { return reinterpret_cast<CUuserObject>(this); }
    void retain(unsigned count) { references_ += count; }
    void release(unsigned count);

  private:
    void* object_;
    CUhostFn destroy_;
    std::atomic<unsigned> references_;
};

std::shared_ptr<UserObject> create_user_object(void* object, CUhostFn destroy, unsigned references);

// Throws Failure with CUDA_ERROR_INVALID_VALUE for anything that is not live.
std::shared_ptr<UserObject> checked_user_object(CUuserObject handle);

}  // namespace simcuda::driver

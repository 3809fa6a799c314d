#include "tools/simcuda/runtime/context.h"

#include <mutex>
#include <unordered_map>

#include "tools/simcuda/runtime/call.h"
#include "tools/simcuda/runtime/error.h"

namespace simcuda::runtime {
namespace {

// Primary contexts this runtime has retained, by device.
class Primaries {
  public:
    CUcontext get(const Driver& cu, int device) {
        std::lock_guard lock(mutex_);
        CUcontext& context = contexts_[device];
        if (!context) {
            if (CUresult result = cu.cuDevicePrimaryCtxRetain(&context, device); result != CUDA_SUCCESS) {
                context = nullptr;
                require(result);
            }
        }
        return context;
    }

    void forget(int device) {
        std::lock_guard lock(mutex_);
        contexts_.erase(device);
    }

    bool has(CUcontext context) {
        std::lock_guard lock(mutex_);
        for (const auto& [device, retained] : contexts_) {
            if (retained == context) return true;
        }
        return false;
    }

  private:
    std::mutex mutex_;
    std::unordered_map<int, CUcontext> contexts_;
};

Primaries& primaries() {
    static auto* instance = new Primaries;  // never freed: programs call CUDA from exit handlers
    return *instance;
}

struct Thread {
    int device = 0;
    CUcontext bound = nullptr;  // the primary context the runtime made current here
};
thread_local Thread t_thread;

void bind(const Driver& cu, int device) {
    CUcontext context = primaries().get(cu, device);
    require(cu.cuCtxSetCurrent(context));
    t_thread = {device, context};
}

int checked_device(const Driver& cu, int device) {
    int count = 0;
    require(cu.cuDeviceGetCount(&count));
    require(device >= 0 && device < count, cudaErrorInvalidDevice);
    return device;
}

constexpr unsigned kScheduleFlags = cudaDeviceScheduleMask;

}  // namespace

void require_context(const Driver& cu) {
    CUcontext current = nullptr;
    require(cu.cuCtxGetCurrent(&current));
    // A primary context that cudaDeviceReset ended may still be on the stacks of other threads.
    if (current && (current != t_thread.bound || primaries().has(current))) return;
    bind(cu, t_thread.device);
}

int current_device(const Driver& cu) {
    CUcontext current = nullptr;
    CUdevice device = 0;
    if (cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
        cu.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
        return device;
    }
    return t_thread.device;
}

CUcontext primary_context(const Driver& cu, int device) {
    return primaries().get(cu, checked_device(cu, device));
}

}  // namespace simcuda::runtime

using namespace simcuda::runtime;

cudaError_t cudaSetDevice(int device) {
    return run<Need::Driver>([&](const Driver& cu) {
        bind(cu, checked_device(cu, device));
        return cudaSuccess;
    });
}

cudaError_t cudaGetDevice(int* device) {
    return run<Need::Driver>([&](const Driver& cu) {
        require(device != nullptr, cudaErrorInvalidValue);
        *device = current_device(cu);
        return cudaSuccess;
    });
}

cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags) {
    return run<Need::Driver>([&](const Driver& cu) -> Status {
        checked_device(cu, device);
        if (flags & cudaInitDeviceFlagsAreValid) {
            require(cu.cuDevicePrimaryCtxSetFlags_v2(device, deviceFlags & kScheduleFlags));
        }
        primaries().get(cu, device);
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceCount(int* count) {
    return run<Need::Driver>([&](const Driver& cu) -> Status {
        require(count != nullptr, cudaErrorInvalidValue);
        require(cu.cuDeviceGetCount(count));
        return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
    });
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
    return run<Need::Driver>([&](const Driver& cu) {
        require((flags & ~static_cast<unsigned>(cudaDeviceMask)) == 0, cudaErrorInvalidValue);
        return cu.cuDevicePrimaryCtxSetFlags_v2(current_device(cu), flags & kScheduleFlags);
    });
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
    return run<Need::Driver>([&](const Driver& cu) {
        require(flags != nullptr, cudaErrorInvalidValue);
        int active = 0;
        CUresult result = cu.cuDevicePrimaryCtxGetState(current_device(cu), flags, &active);
        *flags |= cudaDeviceMapHost;  // always so with unified addressing
        return result;
    });
}

cudaError_t cudaDeviceReset() {
    return run<Need::Driver>([](const Driver& cu) {
        int device = current_device(cu);
        CUresult result = cu.cuDevicePrimaryCtxReset_v2(device);
        primaries().forget(device);
        if (t_thread.bound) cu.cuCtxSetCurrent(nullptr);
        t_thread = {device, nullptr};
        forget_sticky_errors();
        return result;
    });
}

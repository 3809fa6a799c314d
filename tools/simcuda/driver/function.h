// What can be launched: the meeting point of module loading (which fills it) and cuLaunchKernel (which reads
// it).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/exec/grid.h"

namespace simcuda::driver {

class Context;

// A kernel of a module loaded in a context: what a CUfunction points to.
struct Function {
    Context* context = nullptr;
    std::shared_ptr<const exec::Image> image;
    const ptx::Kernel* kernel = nullptr;
    // cuFuncSetAttribute
    std::atomic<int> max_dynamic_shared_bytes{48 * 1024};
    std::atomic<int> preferred_carveout{-1};
    std::atomic<int> cache_config{CU_FUNC_CACHE_PREFER_NONE};
    std::atomic<int> non_portable_cluster{0};
    std::atomic<int> cluster_scheduling{CU_CLUSTER_SCHEDULING_POLICY_DEFAULT};
    std::atomic<int> required_cluster[3]{};  // where the kernel's code does not say it; 0: any
};

// What cuFuncSetBlockShape and cuParamSet* have said of the next cuLaunchGrid.
struct PreparedLaunch {
    std::mutex mutex;  // guards what follows
    unsigned block[3] = {1, 1, 1};
    unsigned shared_bytes = 0;
    std::vector<std::byte> parameters;
};

// Anything whose handle cuLaunchKernel accepts: a CUfunction, or a CUkernel cast to one. Made and registered
// by the module code; the handle is the Launchable's address.
class Launchable {
  public:
    virtual ~Launchable() = default;

    // The function to run in `context`; a kernel of a library loads its module there first. Throws Failure:
    // CUDA_ERROR_INVALID_HANDLE for a function of another context, or what loading fails with.
    virtual Function& bind(Context& context) = 0;

    PreparedLaunch prepared;

    CUfunction handle() { return reinterpret_cast<CUfunction>(this); }
};

// Thread-safe registry of live handles. find throws Failure with CUDA_ERROR_INVALID_HANDLE.
void register_launchable(std::shared_ptr<Launchable> launchable);
void forget_launchable(Launchable* launchable);
std::shared_ptr<Launchable> find_launchable(CUfunction handle);

}  // namespace simcuda::driver

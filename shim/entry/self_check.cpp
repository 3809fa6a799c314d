// lms_self_check: the trial of a GPU in a process that does nothing else (`lms self-check`), for the shim in
// other processes and for `lms doctor`.
#include <cstdio>
#include <cstring>
#include <string>

#include "shim/device/driver_port.h"
#include "shim/device/host_mapping.h"
#include "shim/device/move_trial.h"

namespace lms::entry {
namespace {

using device::driver;

std::string not_tried(const char* what, CUresult why) {
    return std::string(device::kNotTried) + what + ": " + device::error_name(why);
}

// Null where the driver does not take it.
CUfunction load_kernel() {
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    if (driver().cuModuleLoadData(&module, device::kTrialPtx) != CUDA_SUCCESS ||
        driver().cuModuleGetFunction(&kernel, module, device::kTrialKernel) != CUDA_SUCCESS)
        return nullptr;
    return kernel;
}

// Slices of one GPU may share its address: what holds for one holds for all.
CUresult find_gpu(const char* bus_id, CUdevice& gpu) {
    int count = 0;
    if (const CUresult status = driver().cuDeviceGetCount(&count); status != CUDA_SUCCESS) return status;
    for (int i = 0; i < count; ++i) {
        char bus[32] = {};
        if (driver().cuDeviceGet(&gpu, i) == CUDA_SUCCESS &&
            driver().cuDeviceGetPCIBusId(bus, sizeof bus, gpu) == CUDA_SUCCESS &&
            std::strcmp(bus, bus_id) == 0)
            return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

std::string check(const char* bus_id) {
    CUdevice gpu = 0;
    CUcontext context = nullptr;
    CUresult status = driver().cuInit(0);
    if (status != CUDA_SUCCESS) return not_tried("cuInit", status);
    if (status = find_gpu(bus_id, gpu); status != CUDA_SUCCESS) return not_tried("no such GPU", status);
    status = driver().cuDevicePrimaryCtxRetain(&context, gpu);
    if (status == CUDA_SUCCESS) status = driver().cuCtxSetCurrent(context);
    if (status != CUDA_SUCCESS) return not_tried("no context", status);
    const auto port = device::DriverPort::create_for(gpu, context, status);
    if (!port) return not_tried("no virtual memory management", status);
    const bool mapped = port->maps_host_memory();
    const device::Trial trial = device::MoveTrial(*port).run({}, load_kernel());
    const std::string remaps(trial.remaps_wait ? device::kRemapsWait : "");
    switch (trial.trust) {
        case device::Trust::Moves:
            return std::string(mapped ? device::kWorksInPlace : device::kNotMapped) + remaps;
        case device::Trust::NotInPlace:
            return std::string(device::kNotInPlace) + trial.failed + remaps;
        case device::Trust::Nothing:
            return std::string(device::kNothingMoves) + trial.failed;
        default:
            return std::string(device::kNotTried) + trial.failed;
    }
}

}  // namespace
}  // namespace lms::entry

// Writes the verdict on the GPU at that address of the bus, one line of device/host_mapping.h's, to `file`.
extern "C" __attribute__((visibility("default"))) void lms_self_check(const char* bus_id, std::FILE* file) {
    std::fprintf(file, "%s\n", lms::entry::check(bus_id).c_str());
    std::fflush(file);
}

// cuIpc*.
#include <bit>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/ipc.h"

namespace simcuda::driver {
namespace {

CUresult open(Entry entry, CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags) {
    return call(entry, kUnsafeInCapture, [&](Context& context) {
        require(address != nullptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
        *address = open_shared(context, std::bit_cast<SharedMemory>(handle));
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    return call(Entry::cuIpcGetMemHandle, [&](Context&) {
        require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
        const RegionPtr region = memory_map().find(address);
        require(region != nullptr && region->kind == Region::Kind::Device && region->address == address,
                CUDA_ERROR_INVALID_VALUE);
        *handle = std::bit_cast<CUipcMemHandle>(describe(*region));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
    return open(Entry::cuIpcOpenMemHandle, address, handle, flags);
}

SIMCUDA_API cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
    return open(Entry::cuIpcOpenMemHandle_v2, address, handle, flags);
}

SIMCUDA_API cuIpcCloseMemHandle(CUdeviceptr address) {
    return call(Entry::cuIpcCloseMemHandle, kUnsafeInCapture, [&](Context& context) {
        close_shared(context, address);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
    return call(Entry::cuIpcGetEventHandle, [&](Context&) {
        require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto found = checked_event(event);
        require(found->shared != nullptr, CUDA_ERROR_INVALID_HANDLE);
        *handle = found->shared->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
    return call(Entry::cuIpcOpenEventHandle, [&](Context& context) {
        require(event != nullptr, CUDA_ERROR_INVALID_VALUE);
        *event = create_event(context.shared_from_this(), CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS,
                              SharedEvent::open(handle))
                     ->handle();
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

#include "tools/simcuda/ptx/device_runtime.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace simcuda::ptx {
namespace {

using namespace exec;

constexpr DeviceCall kCalls[] = {
    {"__cudaCDP2GetParameterBufferV2", SC_CALL_PREPARE_LAUNCH, "laai", 'l'},
    {"__cudaCDP2LaunchDeviceV2", SC_CALL_LAUNCH, "ls", 'i'},
    {"__cudaCDP2LaunchDeviceV2_ptsz", SC_CALL_LAUNCH, "lp", 'i'},
    {"__cudaCDP2GetLastError", SC_CALL_LAST_ERROR, "", 'i'},
    {"__cudaCDP2PeekAtLastError", SC_CALL_PEEK_ERROR, "", 'i'},
    {"__cudaCDP2StreamCreateWithFlags", SC_CALL_CREATE_STREAM, "li", 'i'},
    {"__cudaCDP2StreamDestroy", SC_CALL_DESTROY_STREAM, "s", 'i'},
    {"__cudaCDP2StreamWaitEvent", SC_CALL_WAIT_EVENT, "sli", 'i'},
    {"__cudaCDP2StreamWaitEvent_ptsz", SC_CALL_WAIT_EVENT, "pli", 'i'},
    {"__cudaCDP2EventCreateWithFlags", SC_CALL_CREATE_EVENT, "li", 'i'},
    {"__cudaCDP2EventRecord", SC_CALL_RECORD_EVENT, "ls", 'i'},
    {"__cudaCDP2EventRecord_ptsz", SC_CALL_RECORD_EVENT, "lp", 'i'},
    {"__cudaCDP2EventDestroy", SC_CALL_DESTROY_EVENT, "l", 'i'},
    {"__cudaCDP2MemcpyAsync", SC_CALL_COPY, "lllis", 'i'},
    {"__cudaCDP2MemcpyAsync_ptsz", SC_CALL_COPY, "lllip", 'i'},
    {"__cudaCDP2Memcpy2DAsync", SC_CALL_COPY_2D, "llllllis", 'i'},
    {"__cudaCDP2Memcpy2DAsync_ptsz", SC_CALL_COPY_2D, "llllllip", 'i'},
    {"__cudaCDP2Memcpy3DAsync", SC_CALL_COPY_3D, "ls", 'i'},
    {"__cudaCDP2Memcpy3DAsync_ptsz", SC_CALL_COPY_3D, "lp", 'i'},
    {"__cudaCDP2MemsetAsync", SC_CALL_FILL, "lils", 'i'},
    {"__cudaCDP2MemsetAsync_ptsz", SC_CALL_FILL, "lilp", 'i'},
    {"__cudaCDP2Memset2DAsync", SC_CALL_FILL_2D, "llills", 'i'},
    {"__cudaCDP2Memset2DAsync_ptsz", SC_CALL_FILL_2D, "llillp", 'i'},
    {"__cudaCDP2Memset3DAsync", SC_CALL_FILL_3D, "aias", 'i'},
    {"__cudaCDP2Memset3DAsync_ptsz", SC_CALL_FILL_3D, "aiap", 'i'},
    {"__cudaCDP2Malloc", SC_CALL_ALLOCATE, "ll", 'i'},
    {"__cudaCDP2Free", SC_CALL_RELEASE, "l", 'i'},
    {"cudaCGGetIntrinsicHandle", SC_CALL_GRID_HANDLE, "i", 'l'},
    {"cudaCGSynchronize", SC_CALL_SYNC_GRID, "li", 'i', true},
    {"cudaCGSynchronizeGrid", SC_CALL_SYNC_GRID, "li", 'i', true},
    {"cudaCGGetSize", SC_CALL_GRID_SIZE, "lll", 'i'},
    {"cudaCGGetRank", SC_CALL_GRID_RANK, "lll", 'i'},
};

// Beside them in NVIDIA's: the last error by name, properties of the device, and all of the version before.
constexpr std::string_view kOnlyNamed[] = {
    "__cudaCDP2DeviceGetAttribute",
    "__cudaCDP2DeviceGetCacheConfig",
    "__cudaCDP2DeviceGetLimit",
    "__cudaCDP2DeviceGetSharedMemConfig",
    "__cudaCDP2FuncGetAttributes",
    "__cudaCDP2GetDevice",
    "__cudaCDP2GetDeviceCount",
    "__cudaCDP2GetErrorName",
    "__cudaCDP2GetErrorString",
    "__cudaCDP2GetParameterBuffer",
    "__cudaCDP2LaunchDevice",
    "__cudaCDP2LaunchDevice_ptsz",
    "__cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessor",
    "__cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "__cudaCDP2RuntimeGetVersion",
    "__cudaDeviceSynchronizeDeprecationAvoidance",
};

constexpr std::string_view kBuiltin[] = {
    "vprintf",
    "__assertfail",
    "malloc",
    "free",
    "cudaGraphSetConditional",
    "cudaGraphLaunch",
    "cudaGraphKernelNodeSetEnabled",
    "cudaGraphKernelNodeSetGridDim",
    "cudaGraphKernelNodeSetParam",
    "cudaGraphKernelNodeUpdatesApply",
};

bool is_in(const auto& names, std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const DeviceCall* find_device_call(std::string_view name) {
    const auto found = std::find_if(std::begin(kCalls), std::end(kCalls),
                                    [name](const DeviceCall& call) { return call.name == name; });
    return found == std::end(kCalls) ? nullptr : found;
}

bool is_builtin_function(std::string_view name) {
    return is_in(kBuiltin, name);
}

bool is_device_runtime_function(std::string_view name) {
    constexpr std::string_view kPresent = "__cudaCDP2", kBefore = "cuda";
    if (find_device_call(name) || is_in(kOnlyNamed, name)) return true;
    // The version before has the same names without "CDP2".
    if (!name.starts_with(kBefore)) return false;
    const std::string present = std::string(kPresent) + std::string(name.substr(kBefore.size()));
    return find_device_call(present) || is_in(kOnlyNamed, present);
}

}  // namespace simcuda::ptx

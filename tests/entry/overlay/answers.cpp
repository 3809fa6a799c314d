// What the simulated driver lacks, as far as the tests of entry need it. Where the real driver looks at
// memory during a call, these insist that it is on the device.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/entry/overlay/record.h"
#include "tests/entry/overlay/simulated.h"

overlay::Record overlay_record;

namespace {

using where::all_on_device;

CUdeviceptr address_of(const void* pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

// Arrays are vectors of bytes.
std::vector<std::uint8_t>& bytes_of(CUarray array) {
    return *reinterpret_cast<std::vector<std::uint8_t>*>(array);
}

std::uintptr_t handles = 0x1000;
std::vector<void*> free_handles;
std::vector<CUstream> free_streams;

void* new_handle() {
    if (free_handles.empty()) return reinterpret_cast<void*>(handles += 16);
    void* const handle = free_handles.back();
    free_handles.pop_back();
    return handle;
}

// Others may have it before the call that frees it is over.
CUresult freed(CUresult status) {
    void (*const call)() =
        status == CUDA_SUCCESS ? std::exchange(overlay_record.handle_free, nullptr) : nullptr;
    if (call) call();
    return status;
}

CUresult free_handle(void* handle) {
    free_handles.push_back(handle);
    return freed(CUDA_SUCCESS);
}

CUresult in_place(bool there) {
    return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

// ---- forms of before CUDA 4.0, as those that followed them

CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
    return SIM(cuCtxCreate_v2)(context, flags, device);
}

CUresult cuCtxDestroy(CUcontext context) {
    return SIM(cuCtxDestroy_v2)(context);
}

CUresult cuCtxDetach(CUcontext context) {
    return SIM(cuCtxDestroy_v2)(context);
}

CUresult cuStreamDestroy(CUstream stream) {
    return SIM(cuStreamDestroy_v2)(stream);
}

// ---- contexts that end beside other threads

CUresult cuCtxDestroy_v2(CUcontext context) {
    if (void (*const call)() = std::exchange(overlay_record.context_goes, nullptr)) call();
    const CUresult status = SIM(cuCtxDestroy_v2)(context);
    if (void (*const call)() = std::exchange(overlay_record.context_gone, nullptr)) call();
    return status;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (void (*const call)() = std::exchange(overlay_record.context_goes, nullptr)) call();
    const CUresult status = SIM(cuDevicePrimaryCtxRelease_v2)(device);
    unsigned flags = 0;
    int active = 0;
    SIM(cuDevicePrimaryCtxGetState)(device, &flags, &active);
    if (void (*const call)() = active ? nullptr : std::exchange(overlay_record.context_gone, nullptr)) call();
    return status;
}

CUresult cuCtxSynchronize() {
    ++overlay_record.context_waits;
    const CUresult status = SIM(cuCtxSynchronize)();
    if (void (*const call)() = std::exchange(overlay_record.context_synchronized, nullptr)) call();
    return status;
}

static CUresult asked(CUresult status) {
    if (status == CUDA_ERROR_INVALID_HANDLE || status == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        ++overlay_record.dead_queries;
    return status;
}

CUresult cuEventQuery(CUevent event) {
    if (overlay_record.events_asked && --overlay_record.events_until <= 0)
        std::exchange(overlay_record.events_asked, nullptr)();
    return asked(SIM(cuEventQuery)(event));
}

CUresult cuStreamQuery(CUstream stream) {
    return asked(SIM(cuStreamQuery)(stream));
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return asked(SIM(cuStreamIsCapturing)(stream, status));
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr at,
                             unsigned long long flags) {
    const CUresult status = SIM(cuMemAddressReserve)(address, bytes, alignment, at, flags);
    constexpr std::size_t kGpu = 6 << 20;
    void (*const call)() = bytes > kGpu ? std::exchange(overlay_record.span_reserved, nullptr) : nullptr;
    if (call) call();
    return status;
}

// ---- nodes as a newer driver may have them

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
    const CUresult status = SIM(cuGraphNodeGetType)(node, type);
    if (status == CUDA_SUCCESS && overlay_record.strange_nodes) *type = CUgraphNodeType(99);
    return status;
}

// ---- handles that are another's before the call is over

// One that somebody waits for becomes the next one.
CUresult cuStreamDestroy_v2(CUstream stream) {
    if (overlay_deinitialized) return CUDA_ERROR_DEINITIALIZED;
    if (overlay_record.keeps_streams) return CUDA_ERROR_UNKNOWN;
    if (!overlay_record.handle_free) return SIM(cuStreamDestroy_v2)(stream);
    CUgraph captured = nullptr;
    if (SIM(cuStreamEndCapture)(stream, &captured) == CUDA_SUCCESS) SIM(cuGraphDestroy)(captured);
    free_streams.push_back(stream);
    return freed(CUDA_SUCCESS);
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    if (overlay_deinitialized) return CUDA_ERROR_DEINITIALIZED;
    if (free_streams.empty()) return SIM(cuStreamCreate)(stream, flags);
    *stream = free_streams.back();
    free_streams.pop_back();
    return CUDA_SUCCESS;
}

// Of managed memory, too.
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
    CUmemPoolProps pinned = *properties;
    pinned.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    return SIM(cuMemPoolCreate)(pool, &pinned);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    return freed(SIM(cuMemPoolDestroy)(pool));
}

// ---- a table of functions without names

CUresult cuGetExportTable(const void** table, const CUuuid*) {
    static const overlay::ExportTable own{sizeof own, SIM(cuMemAlloc_v2), SIM(cuMemFree_v2),
                                          SIM(cuLaunchKernel)};
    *table = &own;
    return CUDA_SUCCESS;
}

// ---- green contexts: contexts beside the primary one, which is retained for each

static class Greens {
  public:
    void add(CUcontext context) {
        const std::lock_guard lock(mutex_);
        users_[context] = {};
    }
    void erase(CUcontext context) {
        const std::lock_guard lock(mutex_);
        users_.erase(context);
    }
    // False: it is current to another thread.
    bool enter(CUcontext context) {
        const std::lock_guard lock(mutex_);
        const auto it = users_.find(context);
        if (it == users_.end()) return true;
        User& user = it->second;
        if (user.times > 0 && user.thread != std::this_thread::get_id()) {
            ++overlay_record.green_uses;
            return false;
        }
        user.thread = std::this_thread::get_id();
        ++user.times;
        return true;
    }
    void leave(CUcontext context) {
        const std::lock_guard lock(mutex_);
        const auto it = users_.find(context);
        if (it != users_.end() && it->second.times > 0) --it->second.times;
    }

  private:
    struct User {
        std::thread::id thread;
        unsigned times = 0;
    };
    std::mutex mutex_;
    std::map<CUcontext, User> users_;
} greens;

CUresult cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc, CUdevice device, unsigned) {
    if (address_of(green) == overlay::kAsked) return overlay::answer_as_asked();
    CUcontext context = nullptr;
    if (const CUresult status = SIM(cuDevicePrimaryCtxRetain)(&context, device)) return status;
    if (const CUresult status = SIM(cuCtxCreate_v2)(&context, 0, device)) {
        SIM(cuDevicePrimaryCtxRelease_v2)(device);
        return status;
    }
    *green = reinterpret_cast<CUgreenCtx>(context);
    greens.add(context);
    return SIM(cuCtxPopCurrent_v2)(&context);
}

CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
    *context = reinterpret_cast<CUcontext>(green);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    CUdevice device = 0;
    const auto context = reinterpret_cast<CUcontext>(green);
    greens.erase(context);
    if (const CUresult status = SIM(cuCtxPushCurrent_v2)(context)) return status;
    SIM(cuCtxGetDevice)(&device);
    if (const CUresult status = SIM(cuCtxDestroy_v2)(context)) return status;
    return SIM(cuDevicePrimaryCtxRelease_v2)(device);
}

// Each may be current to one thread at a time.
CUresult cuCtxSetCurrent(CUcontext context) {
    CUcontext before = nullptr;
    SIM(cuCtxGetCurrent)(&before);
    if (!greens.enter(context)) return CUDA_ERROR_INVALID_CONTEXT;
    greens.leave(before);
    return SIM(cuCtxSetCurrent)(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    return greens.enter(context) ? SIM(cuCtxPushCurrent_v2)(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    const CUresult status = SIM(cuCtxPopCurrent_v2)(context);
    if (status == CUDA_SUCCESS) greens.leave(*context);
    return status;
}

// Of none: of the one that is current.
CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned flags, int priority) {
    CUcontext context = reinterpret_cast<CUcontext>(green);
    if (context) SIM(cuCtxPushCurrent_v2)(context);
    const CUresult status = SIM(cuStreamCreateWithPriority)(stream, flags, priority);
    if (context) SIM(cuCtxPopCurrent_v2)(&context);
    return status;
}

// ---- arrays

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
    if (address_of(array) == overlay::kAsked) return overlay::answer_as_asked();
    *array = reinterpret_cast<CUarray>(new std::vector<std::uint8_t>(descriptor->Width));
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoA_v2(CUarray to, std::size_t at, CUdeviceptr from, std::size_t bytes) {
    return SIM(cuMemcpyDtoH_v2)(bytes_of(to).data() + at, from, bytes);
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray to, std::size_t at, CUdeviceptr from, std::size_t bytes) {
    return SIM(cuMemcpyDtoH_v2_ptds)(bytes_of(to).data() + at, from, bytes);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, std::size_t at, std::size_t bytes) {
    return SIM(cuMemcpyHtoD_v2)(to, bytes_of(from).data() + at, bytes);
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr to, CUarray from, std::size_t at, std::size_t bytes) {
    return SIM(cuMemcpyHtoD_v2_ptds)(to, bytes_of(from).data() + at, bytes);
}

// ---- decompression

// "Decompresses" by copying; its engine reaches device memory only.
static CUresult decompress(CUmemDecompressParams* batch, std::size_t count, CUstream stream,
                           decltype(&cuMemcpyAsync) copy) {
    for (std::size_t i = 0; i < count; ++i) {
        const CUdeviceptr src = address_of(batch[i].src);
        const CUdeviceptr dst = address_of(batch[i].dst);
        if (!all_on_device(src, batch[i].srcNumBytes) || !all_on_device(dst, batch[i].srcNumBytes))
            return CUDA_ERROR_INVALID_VALUE;
        const CUresult status = copy(dst, src, batch[i].srcNumBytes, stream);
        if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemBatchDecompressAsync(CUmemDecompressParams* batch, std::size_t count, unsigned, std::size_t*,
                                   CUstream stream) {
    return decompress(batch, count, stream, SIM(cuMemcpyAsync));
}

CUresult cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams* batch, std::size_t count, unsigned,
                                        std::size_t*, CUstream stream) {
    return decompress(batch, count, stream, SIM(cuMemcpyAsync_ptsz));
}

// ---- objects that hold addresses

CUresult cuTexObjectCreate(CUtexObject* object, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC*,
                           const CUDA_RESOURCE_VIEW_DESC*) {
    if (resource->resType == CU_RESOURCE_TYPE_LINEAR) {
        const auto& linear = resource->res.linear;
        if (linear.numChannels == 3) return CUDA_ERROR_INVALID_VALUE;
        if (!all_on_device(linear.devPtr, linear.sizeInBytes)) return CUDA_ERROR_INVALID_VALUE;
    } else if (resource->resType == CU_RESOURCE_TYPE_PITCH2D) {
        const auto& pitched = resource->res.pitch2D;
        if (!all_on_device(pitched.devPtr, pitched.pitchInBytes * pitched.height))
            return CUDA_ERROR_INVALID_VALUE;
    }
    *object = reinterpret_cast<CUtexObject>(new_handle());
    return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject object) {
    return free_handle(reinterpret_cast<void*>(object));
}

CUresult cuTexRefCreate(CUtexref* reference) {
    *reference = reinterpret_cast<CUtexref>(new_handle());
    return CUDA_SUCCESS;
}

CUresult cuTexRefDestroy(CUtexref reference) {
    return reference ? free_handle(reference) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexRefSetAddress_v2(std::size_t* offset, CUtexref, CUdeviceptr address, std::size_t bytes) {
    *offset = 0;
    return in_place(bytes == 0 || all_on_device(address, bytes));
}

CUresult cuTexRefSetAddress2D_v3(CUtexref, const CUDA_ARRAY_DESCRIPTOR* descriptor, CUdeviceptr address,
                                 std::size_t pitch) {
    return in_place(all_on_device(address, pitch * descriptor->Height));
}

CUresult cuTexRefSetAddress2D_v2(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR* descriptor,
                                 CUdeviceptr address, std::size_t pitch) {
    return cuTexRefSetAddress2D_v3(reference, descriptor, address, pitch);
}

CUresult cuTexRefSetArray(CUtexref, CUarray array, unsigned) {
    return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexRefSetMipmappedArray(CUtexref, CUmipmappedArray array, unsigned) {
    return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// A tensor map whose bytes do not show the address: word 2 is its complement.
static CUresult encode(CUtensorMap* map, void* address) {
    if (address_of(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < 16; ++i) map->opaque[i] = 0x5a5a5a5a00200000 + i;
    map->opaque[2] = ~address_of(address);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void* address,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
    return encode(map, address);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void* address,
                                 const cuuint64_t*, const cuuint64_t*, const int*, const int*, cuuint32_t,
                                 cuuint32_t, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    return encode(map, address);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void* address,
                                     const cuuint64_t*, const cuuint64_t*, int, int, cuuint32_t, cuuint32_t,
                                     const cuuint32_t*, CUtensorMapInterleave, CUtensorMapIm2ColWideMode,
                                     CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    return encode(map, address);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
    return encode(map, address);
}

// ---- parameter layouts: told, unless OVERLAY_WITHOUT_LAYOUTS=1

static bool without_layouts() {
    const char* const set = std::getenv("OVERLAY_WITHOUT_LAYOUTS");
    return set && set[0] == '1';
}

static bool is_kernel(const void* handle) {
    CUlibrary library = nullptr;
    return SIM(cuKernelGetLibrary)(&library, static_cast<CUkernel>(const_cast<void*>(handle))) ==
           CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* bytes) {
    if (without_layouts()) return CUDA_ERROR_NOT_SUPPORTED;
    if (overlay_record.tells_apart && is_kernel(function)) return CUDA_ERROR_INVALID_VALUE;
    return SIM(cuFuncGetParamInfo)(function, index, offset, bytes);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset, std::size_t* bytes) {
    if (without_layouts()) return CUDA_ERROR_NOT_SUPPORTED;
    if (overlay_record.tells_apart && !is_kernel(kernel)) return CUDA_ERROR_INVALID_VALUE;
    return SIM(cuKernelGetParamInfo)(kernel, index, offset, bytes);
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
    if (overlay_record.tells_apart && is_kernel(function)) return CUDA_ERROR_INVALID_HANDLE;
    return SIM(cuFuncGetModule)(module, function);
}

// ---- sharing

CUresult cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr) {
    ++overlay_record.exports;
    return CUDA_SUCCESS;
}

CUresult cuMemGetHandleForAddressRange(void*, CUdeviceptr address, std::size_t bytes, CUmemRangeHandleType,
                                       unsigned long long) {
    ++overlay_record.exports;
    return in_place(all_on_device(address, bytes));
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData*, CUdeviceptr) {
    ++overlay_record.exports;
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle, std::size_t, CUdeviceptr address,
                             std::size_t bytes, unsigned long long) {
    ++overlay_record.exports;
    return in_place(all_on_device(address, bytes));
}

// Of memory of the driver's own, and with no other tile pools than it.
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle, std::size_t, CUmemGenericAllocationHandle handle,
                            std::size_t, std::size_t, unsigned long long) {
    ++overlay_record.exports;
    CUmemAllocationProp properties{};
    return SIM(cuMemGetAllocationPropertiesFromHandle)(&properties, handle);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo* list, unsigned count, CUstream) {
    for (unsigned i = 0; i < count; ++i) {
        if (list[i].memHandle.memHandle != 0) return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* list, unsigned count, CUstream stream) {
    return cuMemMapArrayAsync(list, count, stream);
}

// ---- launches of the first years: parameters are set beforehand

static std::vector<std::uint8_t> legacy_parameters;

CUresult cuFuncSetBlockShape(CUfunction, int x, int, int) {
    overlay_record.block = static_cast<unsigned>(x);
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction, unsigned bytes) {
    legacy_parameters.resize(bytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction, int offset, void* data, unsigned bytes) {
    std::memcpy(legacy_parameters.data() + offset, data, bytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    std::size_t bytes = legacy_parameters.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, legacy_parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};
    return SIM(cuLaunchKernel)(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                               overlay_record.block, 1, 1, 0, stream, nullptr, extra);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, nullptr);
}

CUresult cuLaunch(CUfunction function) {
    return cuLaunchGrid(function, 1, 1);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned) {
    for (unsigned i = 0; i < count; ++i) {
        const CUDA_LAUNCH_PARAMS& each = launches[i];
        const CUresult status = SIM(cuLaunchKernel)(
            each.function, each.gridDimX, each.gridDimY, each.gridDimZ, each.blockDimX, each.blockDimY,
            each.blockDimZ, each.sharedMemBytes, each.hStream, each.kernelParams, nullptr);
        if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
}

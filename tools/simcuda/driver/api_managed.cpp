// Hints about managed memory. It is coherent by itself here, so they are checked and otherwise change
// nothing.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

void check_managed(CUdeviceptr address, std::size_t bytes) {
    const bool managed = bytes != 0 && memory_map().covers(address, bytes, [](const Region& region) {
        return region.kind == Region::Kind::Managed;
    });
    require(managed, CUDA_ERROR_INVALID_VALUE);
}

void check_device(CUdevice device) {
    if (device != CU_DEVICE_CPU) checked_device(device);
}

void check_location(const CUmemLocation& location) {
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            checked_device(location.id);
            return;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            return;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

void check_advice(CUmem_advise advice) {
    require(advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY,
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

SIMCUDA_API cuMemAdvise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice, CUdevice device) {
    return call(Entry::cuMemAdvise, [&](Context&) {
        check_managed(address, bytes);
        check_advice(advice);
        check_device(device);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemAdvise_v2(CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                           CUmemLocation location) {
    return call(Entry::cuMemAdvise_v2, [&](Context&) {
        check_managed(address, bytes);
        check_advice(advice);
        check_location(location);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuMemPrefetchAsync, _ptsz,
                   (CUdeviceptr address, std::size_t bytes, CUdevice device, CUstream handle),
                   (address, bytes, device, handle)) {
    return call(site.entry, [&](Context& context) {
        check_managed(address, bytes);
        check_device(device);
        submit(*resolve(context, handle, site.per_thread), MarkerOp{});
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuMemPrefetchAsync_v2, _ptsz,
                   (CUdeviceptr address, std::size_t bytes, CUmemLocation location, unsigned flags,
                    CUstream handle),
                   (address, bytes, location, flags, handle)) {
    return call(site.entry, [&](Context& context) {
        check_managed(address, bytes);
        check_location(location);
        require(flags == 0, CUDA_ERROR_INVALID_VALUE);
        submit(*resolve(context, handle, site.per_thread), MarkerOp{});
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

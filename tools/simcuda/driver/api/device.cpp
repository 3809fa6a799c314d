// cuDevice*: what there is.
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/identity.h"
#include "tools/simcuda/driver/knobs.h"

namespace simcuda::driver {
namespace {

CUresult copy_text(const std::string& text, char* out, int length) {
    require(out != nullptr && length > 0, CUDA_ERROR_INVALID_VALUE);
    std::snprintf(out, static_cast<std::size_t>(length), "%s", text.c_str());
    return CUDA_SUCCESS;
}

CUresult uuid(CUuuid* out, CUdevice ordinal) {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto bytes = uuid_of(checked_device(ordinal).ordinal);
    std::memcpy(out->bytes, bytes.data(), bytes.size());
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_API cuDeviceGet(CUdevice* device, int ordinal) {
    return call(Entry::cuDeviceGet, [&] {
        require(device != nullptr, CUDA_ERROR_INVALID_VALUE);
        *device = checked_device(ordinal).ordinal;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetCount(int* count) {
    return call(Entry::cuDeviceGetCount, [&] {
        require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
        *count = static_cast<int>(devices().size());
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetName(char* name, int length, CUdevice device) {
    return call(Entry::cuDeviceGetName, [&] {
        checked_device(device);
        return copy_text(kDeviceName, name, length);
    });
}

SIMCUDA_API cuDeviceGetUuid(CUuuid* id, CUdevice device) {
    return call(Entry::cuDeviceGetUuid, [&] { return uuid(id, device); });
}

SIMCUDA_API cuDeviceGetUuid_v2(CUuuid* id, CUdevice device) {
    return call(Entry::cuDeviceGetUuid_v2, [&] { return uuid(id, device); });
}

SIMCUDA_API cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
    return call(Entry::cuDeviceTotalMem_v2, [&] {
        require(bytes != nullptr, CUDA_ERROR_INVALID_VALUE);
        *bytes = checked_device(device).memory.capacity();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return call(Entry::cuDeviceGetAttribute, [&] {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        *value = device_attribute(checked_device(device), attribute);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    return call(Entry::cuDeviceComputeCapability, [&] {
        require(major != nullptr && minor != nullptr, CUDA_ERROR_INVALID_VALUE);
        *major = device_attribute(checked_device(device), CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        *minor = device_attribute(checked_device(device), CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) {
    return call(Entry::cuDeviceGetProperties, [&] {
        require(properties != nullptr, CUDA_ERROR_INVALID_VALUE);
        const Device& device = checked_device(ordinal);
        const auto get = [&](CUdevice_attribute attribute) { return device_attribute(device, attribute); };
        CUdevprop p{};
        p.maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        for (int i = 0; i < 3; ++i) {
            p.maxThreadsDim[i] =
                get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
            p.maxGridSize[i] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
        }
        p.sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
        p.totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
        p.SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
        p.memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
        p.regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
        p.clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        p.textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
        *properties = p;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
    return call(Entry::cuDeviceGetPCIBusId, [&] {
        const int ordinal = checked_device(device).ordinal;
        const std::string full = pci_id(is(Perverse::OneBusAddress) ? 0 : ordinal);
        require(length > static_cast<int>(full.size()), CUDA_ERROR_INVALID_VALUE);
        return copy_text(full, id, length);
    });
}

SIMCUDA_API cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
    return call(Entry::cuDeviceGetByPCIBusId, [&] {
        require(device != nullptr && id != nullptr, CUDA_ERROR_INVALID_VALUE);
        require(!is(Perverse::OneBusAddress), CUDA_ERROR_INVALID_DEVICE);
        for (const Device& candidate : devices()) {
            const std::string full =
                pci_id(candidate.ordinal);  // "domain:bus:device.function", the domain optional
            if (id != full && id != full.substr(5)) continue;
            *device = candidate.ordinal;
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_DEVICE;
    });
}

SIMCUDA_API cuDeviceGetLuid(char*, unsigned*, CUdevice) {
    return call(Entry::cuDeviceGetLuid, [] { return CUDA_ERROR_NOT_SUPPORTED; });  // a Windows notion
}

SIMCUDA_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    return call(Entry::cuDeviceCanAccessPeer, [&] {
        require(can != nullptr, CUDA_ERROR_INVALID_VALUE);
        *can = checked_device(device).ordinal != checked_device(peer).ordinal;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
    return call(Entry::cuDeviceGetP2PAttribute, [&] {
        require(value != nullptr && attribute >= CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK &&
                    attribute <= CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED,
                CUDA_ERROR_INVALID_VALUE);
        require(checked_device(from).ordinal != checked_device(to).ordinal, CUDA_ERROR_INVALID_DEVICE);
        *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType, CUdevice device) {
    return call(Entry::cuDeviceGetExecAffinitySupport, [&] {
        require(supported != nullptr, CUDA_ERROR_INVALID_VALUE);
        checked_device(device);
        *supported = 0;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetTexture1DLinearMaxWidth(std::size_t* elements, CUarray_format, unsigned,
                                               CUdevice device) {
    return call(Entry::cuDeviceGetTexture1DLinearMaxWidth, [&] {
        require(elements != nullptr, CUDA_ERROR_INVALID_VALUE);
        *elements = static_cast<std::size_t>(
            device_attribute(checked_device(device), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH));
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver

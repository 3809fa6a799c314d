// cuArray* and cuMipmappedArray*.
#include "tools/simcuda/driver/array.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"

namespace simcuda::driver {
namespace {

CUDA_ARRAY3D_DESCRIPTOR descriptor_as_3d(const CUDA_ARRAY_DESCRIPTOR& d) {
    return {d.Width, d.Height, 0, d.Format, d.NumChannels, 0};
}

// For questions about what only arrays of other kinds have: planes, sparse or deferred memory.
CUresult has_none(CUarray array) {
    checked_array(array);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult has_none(CUmipmappedArray array) {
    checked_mipmapped(array);
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

SIMCUDA_API cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
    return call(Entry::cuArrayCreate_v2, kUnsafeInCapture, [&](Context& context) {
        require(array != nullptr && descriptor != nullptr, CUDA_ERROR_INVALID_VALUE);
        *array = create_array(context, descriptor_as_3d(*descriptor))->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
    return call(Entry::cuArray3DCreate_v2, kUnsafeInCapture, [&](Context& context) {
        require(array != nullptr && descriptor != nullptr, CUDA_ERROR_INVALID_VALUE);
        *array = create_array(context, *descriptor)->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray array) {
    return call(Entry::cuArrayGetDescriptor_v2, [&](Context&) {
        require(descriptor != nullptr, CUDA_ERROR_INVALID_VALUE);
        const CUDA_ARRAY3D_DESCRIPTOR d = checked_array(array)->descriptor;
        *descriptor = {d.Width, d.Height, d.Format, d.NumChannels};
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray array) {
    return call(Entry::cuArray3DGetDescriptor_v2, [&](Context&) {
        require(descriptor != nullptr, CUDA_ERROR_INVALID_VALUE);
        *descriptor = checked_array(array)->descriptor;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuArrayDestroy(CUarray array) {
    return call(Entry::cuArrayDestroy, kUnsafeInCapture | kNotAfterFailure, [&] {
        destroy_array(array);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuArrayGetPlane(CUarray* plane, CUarray array, unsigned) {
    return call(Entry::cuArrayGetPlane, [&](Context&) {
        require(plane != nullptr, CUDA_ERROR_INVALID_VALUE);
        return has_none(array);
    });
}

SIMCUDA_API cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray array) {
    return call(Entry::cuArrayGetSparseProperties, [&](Context&) {
        require(properties != nullptr, CUDA_ERROR_INVALID_VALUE);
        return has_none(array);
    });
}

SIMCUDA_API cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray array,
                                         CUdevice) {
    return call(Entry::cuArrayGetMemoryRequirements, [&](Context&) {
        require(requirements != nullptr, CUDA_ERROR_INVALID_VALUE);
        return has_none(array);
    });
}

SIMCUDA_API cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                   unsigned levels) {
    return call(Entry::cuMipmappedArrayCreate, kUnsafeInCapture, [&](Context& context) {
        require(array != nullptr && descriptor != nullptr, CUDA_ERROR_INVALID_VALUE);
        *array = create_mipmapped(context, *descriptor, levels)->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMipmappedArrayGetLevel(CUarray* array, CUmipmappedArray mipmapped, unsigned level) {
    return call(Entry::cuMipmappedArrayGetLevel, [&](Context&) {
        require(array != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto found = checked_mipmapped(mipmapped);
        require(level < found->levels.size(), CUDA_ERROR_INVALID_VALUE);
        *array = found->levels[level]->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMipmappedArrayDestroy(CUmipmappedArray array) {
    return call(Entry::cuMipmappedArrayDestroy, kUnsafeInCapture | kNotAfterFailure, [&] {
        destroy_mipmapped(array);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties,
                                                CUmipmappedArray array) {
    return call(Entry::cuMipmappedArrayGetSparseProperties, [&](Context&) {
        require(properties != nullptr, CUDA_ERROR_INVALID_VALUE);
        return has_none(array);
    });
}

SIMCUDA_API cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements,
                                                  CUmipmappedArray array, CUdevice) {
    return call(Entry::cuMipmappedArrayGetMemoryRequirements, [&](Context&) {
        require(requirements != nullptr, CUDA_ERROR_INVALID_VALUE);
        return has_none(array);
    });
}

}  // namespace simcuda::driver

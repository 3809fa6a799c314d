// Textures over linear memory. The driver notes where that is when it is told, and kernels that use a texture
// name none of it: it stays on the device until the texture goes. (Surfaces are over arrays only.)
#include "shim/access/array_formats.h"
#include "shim/access/object_pins.h"
#include "shim/device/driver_table.h"
#include "shim/entry/ranges.h"

namespace lms::entry {
namespace {

using device::driver;
using session::Range;

// What rows of a texture span; of elements of unknown size only the last row is not known.
Range rows_of(CUdeviceptr address, std::size_t pitch, std::size_t height, std::size_t width,
              CUarray_format format, unsigned channels) {
    if (height == 0) return {address, 0};
    return {address, (height - 1) * pitch + width * access::element_bytes(format, channels).value_or(0)};
}

Range rows_of(CUdeviceptr address, std::size_t pitch, const CUDA_ARRAY_DESCRIPTOR* texels) {
    if (!texels) return {address, 0};
    return rows_of(address, pitch, texels->Height, texels->Width, texels->Format, texels->NumChannels);
}

std::vector<Range> linear_memory(const CUDA_RESOURCE_DESC* resource) {
    if (resource && resource->resType == CU_RESOURCE_TYPE_LINEAR) {
        return {{resource->res.linear.devPtr, resource->res.linear.sizeInBytes}};
    }
    if (resource && resource->resType == CU_RESOURCE_TYPE_PITCH2D) {
        const auto& pitched = resource->res.pitch2D;
        return {rows_of(pitched.devPtr, pitched.pitchInBytes, pitched.height, pitched.width, pitched.format,
                        pitched.numChannels)};
    }
    return {};
}

// Makes an object that names `ranges`: by `call`, whose object is then `object()`.
template <typename Call, typename Object>
CUresult name_in(const std::vector<Range>& ranges, Call&& call, Object&& object) {
    return guarded_taking([&]() -> CUresult {
        CUresult status = within_buffers(ranges);
        if (status != CUDA_SUCCESS) return status;
        std::vector<session::PinnedIn> kept;
        status = session::pin_resident(ranges, kept);
        if (status != CUDA_SUCCESS) return status;
        status = session::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS) {
            access::object_names(object(), std::move(kept));
        } else {
            session::let_go(kept);
        }
        return status;
    });
}

template <typename Call>
CUresult bind(CUtexref reference, const std::vector<Range>& ranges, Call&& call) {
    return name_in(ranges, call, [&] { return reference; });
}

const void* handle_of(CUtexObject object) {
    return reinterpret_cast<const void*>(object);
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc, const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
    return name_in(
        linear_memory(pResDesc),
        [&] { return driver().cuTexObjectCreate(pTexObject, pResDesc, pTexDesc, pResViewDesc); },
        [&] { return handle_of(*pTexObject); });
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
    return guarded_end<access::ObjectEnd>(handle_of(texObject),
                                          [&] { return driver().cuTexObjectDestroy(texObject); });
}

CUresult cuTexRefSetAddress_v2(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t bytes) {
    return bind(hTexRef, {{dptr, bytes}},
                [&] { return driver().cuTexRefSetAddress_v2(ByteOffset, hTexRef, dptr, bytes); });
}

CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr dptr,
                                 size_t Pitch) {
    return bind(hTexRef, {rows_of(dptr, Pitch, desc)},
                [&] { return driver().cuTexRefSetAddress2D_v2(hTexRef, desc, dptr, Pitch); });
}

CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr dptr,
                                 size_t Pitch) {
    return bind(hTexRef, {rows_of(dptr, Pitch, desc)},
                [&] { return driver().cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch); });
}

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
    return guarded_end<access::ObjectEnd>(hTexRef,
                                          [&] { return driver().cuTexRefSetArray(hTexRef, hArray, Flags); });
}

CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray, unsigned int Flags) {
    return guarded_end<access::ObjectEnd>(
        hTexRef, [&] { return driver().cuTexRefSetMipmappedArray(hTexRef, hMipmappedArray, Flags); });
}

CUresult cuTexRefDestroy(CUtexref hTexRef) {
    return guarded_end<access::ObjectEnd>(hTexRef, [&] { return driver().cuTexRefDestroy(hTexRef); });
}

// Tensor maps: encoding one needs nothing of the memory it names, using it does.
#include "shim/access/tensor_maps.h"

#include "shim/device/driver_table.h"
#include "shim/entry/guard.h"
#include "shim/session/sessions.h"

namespace lms::entry {
namespace {

// Notes the map that `call` has made for `address`, if that is managed or may come to be.
template <typename Call>
CUresult encode(const CUtensorMap* map, const void* address, Call&& call) {
    return guarded([&] {
        const CUresult status = call();
        const auto where = reinterpret_cast<engine::Address>(address);
        if (status == CUDA_SUCCESS && in(session::managed_bounds(), where))
            access::note_tensor_map(*map, where);
        return status;
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress, const cuuint64_t* globalDim,
                                const cuuint64_t* globalStrides, const cuuint32_t* boxDim,
                                const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill) {
    return encode(tensorMap, globalAddress, [&] {
        return driver().cuTensorMapEncodeTiled(tensorMap, tensorDataType, tensorRank, globalAddress,
                                               globalDim, globalStrides, boxDim, elementStrides, interleave,
                                               swizzle, l2Promotion, oobFill);
    });
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void* globalAddress, const cuuint64_t* globalDim,
                                 const cuuint64_t* globalStrides, const int* pixelBoxLowerCorner,
                                 const int* pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
                                 cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill) {
    return encode(tensorMap, globalAddress, [&] {
        return driver().cuTensorMapEncodeIm2col(tensorMap, tensorDataType, tensorRank, globalAddress,
                                                globalDim, globalStrides, pixelBoxLowerCorner,
                                                pixelBoxUpperCorner, channelsPerPixel, pixelsPerColumn,
                                                elementStrides, interleave, swizzle, l2Promotion, oobFill);
    });
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                     cuuint32_t tensorRank, void* globalAddress, const cuuint64_t* globalDim,
                                     const cuuint64_t* globalStrides, int pixelBoxLowerCornerWidth,
                                     int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
                                     cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides,
                                     CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                     CUtensorMapFloatOOBfill oobFill) {
    return encode(tensorMap, globalAddress, [&] {
        return driver().cuTensorMapEncodeIm2colWide(
            tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
            pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth, channelsPerPixel, pixelsPerColumn,
            elementStrides, interleave, mode, swizzle, l2Promotion, oobFill);
    });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
    return encode(tensorMap, globalAddress,
                  [&] { return driver().cuTensorMapReplaceAddress(tensorMap, globalAddress); });
}

CUresult cuTensorMapSetAllocationClass(CUtensorMap* tensorMap, CUtensorMapAllocClass allocClass,
                                       CUtensorMapAllocClass* outAllocClass) {
    return guarded([&] {
        std::pmr::vector<lms::engine::Address> named;
        if (tensorMap) lms::access::find_tensor_maps(tensorMap, 0, sizeof *tensorMap, named);
        const CUresult status = driver().cuTensorMapSetAllocationClass(tensorMap, allocClass, outAllocClass);
        if (status == CUDA_SUCCESS) {
            for (const lms::engine::Address address : named)
                lms::access::note_tensor_map(*tensorMap, address);
        }
        return status;
    });
}

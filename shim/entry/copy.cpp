// Copies. Every form brings in the parts of managed buffers it names; host pointers, arrays and unmanaged
// memory are left to the driver.
#include <type_traits>

#include "shim/entry/box_copy.h"
#include "shim/entry/forms.h"
#include "shim/entry/transfer.h"

namespace lms::entry {
namespace {

// Memory has a pointer where a call takes it for the host's, and a number where it does for the GPU's.
template <typename Place>
engine::Address address_of(Place place) {
    if constexpr (std::is_pointer_v<Place>) return reinterpret_cast<engine::Address>(place);
    if constexpr (!std::is_pointer_v<Place>) return place;
}
template <typename Place>
Place place_of(engine::Address address) {
    if constexpr (std::is_pointer_v<Place>) return reinterpret_cast<Place>(address);
    if constexpr (!std::is_pointer_v<Place>) return address;
}

template <typename Form>
Transfer made(TransferKind kind, engine::Address to, engine::Address from, std::size_t bytes,
              CUstream handle) {
    return {kind, Form::kWaits, to, from, bytes, Form::stream(handle), handle};
}

template <typename Form, typename To, typename From>
CUresult copy(TransferKind kind, To to, From from, std::size_t bytes, CUstream handle = nullptr) {
    return submit(
        made<Form>(kind, address_of(to), address_of(from), bytes, handle), [](const Transfer& part) {
            return Form::real_in(part.handle, place_of<To>(part.to), place_of<From>(part.from), part.bytes);
        });
}

template <typename Form>
CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                   std::size_t bytes, CUstream handle = nullptr) {
    Transfer whole = made<Form>(TransferKind::BetweenGpus, to, from, bytes, handle);
    whole.to_context = to_context;
    whole.from_context = from_context;
    return submit(whole, [](const Transfer& part) {
        return Form::real_in(part.handle, part.to, part.to_context, part.from, part.from_context, part.bytes);
    });
}

// What is called the host's here may be managed.
template <typename Form, typename From>
CUresult copy_to_array(CUarray to, std::size_t offset, From from, std::size_t bytes,
                       CUstream handle = nullptr) {
    Transfer whole = made<Form>(TransferKind::ToArray, 0, address_of(from), bytes, handle);
    whole.array = to;
    whole.array_offset = offset;
    return submit(whole, [](const Transfer& part) {
        return Form::real_in(part.handle, part.array, part.array_offset, place_of<From>(part.from),
                             part.bytes);
    });
}

template <typename Form, typename To>
CUresult copy_from_array(To to, CUarray from, std::size_t offset, std::size_t bytes,
                         CUstream handle = nullptr) {
    Transfer whole = made<Form>(TransferKind::FromArray, address_of(to), 0, bytes, handle);
    whole.array = from;
    whole.array_offset = offset;
    return submit(whole, [](const Transfer& part) {
        return Form::real_in(part.handle, place_of<To>(part.to), part.array, part.array_offset, part.bytes);
    });
}

// 2D and 3D copies.
template <typename Form, typename Descriptor>
CUresult copy_box(const Descriptor* copy, CUstream handle = nullptr) {
    if (!copy) return Form::real_in(handle, copy);
    const auto call = [](const BoxCopy& part) {
        Descriptor descriptor;
        take(descriptor, part.box);
        return Form::real_in(part.handle, &descriptor);
    };
    return submit(BoxCopy{Form::kWaits, Form::stream(handle), handle, box_from(*copy), call});
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;

LMS_FORMS(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
          return copy<Form>(TransferKind::ByAddress, dst, src, ByteCount);)
LMS_FORMS(cuMemcpyAsync, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
          return copy<Form>(TransferKind::ByAddress, dst, src, ByteCount, hStream);)

LMS_FORMS(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount),
          return copy<Form>(TransferKind::ToGpu, dstDevice, srcHost, ByteCount);)
LMS_FORMS(cuMemcpyHtoDAsync_v2, _ptsz,
          (CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount, CUstream hStream),
          return copy<Form>(TransferKind::ToGpu, dstDevice, srcHost, ByteCount, hStream);)

LMS_FORMS(cuMemcpyDtoH_v2, _ptds, (void* dstHost, CUdeviceptr srcDevice, size_t ByteCount),
          return copy<Form>(TransferKind::ToHost, dstHost, srcDevice, ByteCount);)
LMS_FORMS(cuMemcpyDtoHAsync_v2, _ptsz,
          (void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
          return copy<Form>(TransferKind::ToHost, dstHost, srcDevice, ByteCount, hStream);)

LMS_FORMS(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
          return copy<Form>(TransferKind::OnGpu, dstDevice, srcDevice, ByteCount);)
LMS_FORMS(cuMemcpyDtoDAsync_v2, _ptsz,
          (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
          return copy<Form>(TransferKind::OnGpu, dstDevice, srcDevice, ByteCount, hStream);)

LMS_FORMS(cuMemcpyPeer, _ptds,
          (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
           size_t ByteCount),
          return copy_peer<Form>(dstDevice, dstContext, srcDevice, srcContext, ByteCount);)
LMS_FORMS(cuMemcpyPeerAsync, _ptsz,
          (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
           size_t ByteCount, CUstream hStream),
          return copy_peer<Form>(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);)

LMS_FORMS(cuMemcpyDtoA_v2, _ptds,
          (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount),
          return copy_to_array<Form>(dstArray, dstOffset, srcDevice, ByteCount);)
LMS_FORMS(cuMemcpyAtoD_v2, _ptds,
          (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount),
          return copy_from_array<Form>(dstDevice, srcArray, srcOffset, ByteCount);)

LMS_FORMS(cuMemcpyHtoA_v2, _ptds, (CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount),
          return copy_to_array<Form>(dstArray, dstOffset, srcHost, ByteCount);)
LMS_FORMS(cuMemcpyHtoAAsync_v2, _ptsz,
          (CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount, CUstream hStream),
          return copy_to_array<Form>(dstArray, dstOffset, srcHost, ByteCount, hStream);)
LMS_FORMS(cuMemcpyAtoH_v2, _ptds, (void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount),
          return copy_from_array<Form>(dstHost, srcArray, srcOffset, ByteCount);)
LMS_FORMS(cuMemcpyAtoHAsync_v2, _ptsz,
          (void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream),
          return copy_from_array<Form>(dstHost, srcArray, srcOffset, ByteCount, hStream);)

#define LMS_BOX_COPY(symbol, descriptor) \
    LMS_FORMS(symbol, _ptds, (const descriptor* pCopy), return copy_box<Form>(pCopy);)
#define LMS_BOX_COPY_ASYNC(symbol, descriptor)                            \
    LMS_FORMS(symbol, _ptsz, (const descriptor* pCopy, CUstream hStream), \
              return copy_box<Form>(pCopy, hStream);)

LMS_BOX_COPY(cuMemcpy2D_v2, CUDA_MEMCPY2D)
LMS_BOX_COPY(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D)
LMS_BOX_COPY(cuMemcpy3D_v2, CUDA_MEMCPY3D)
LMS_BOX_COPY(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER)
LMS_BOX_COPY_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D)
LMS_BOX_COPY_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
LMS_BOX_COPY_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER)

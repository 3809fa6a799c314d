// Decompression by the copy engine, which reaches memory on the GPU only.
#include "shim/entry/context_check.h"
#include "shim/entry/forms.h"
#include "shim/entry/ranges.h"

namespace lms::entry {
namespace {

// What may be written from `address` on: `bytes`, or where that is not told the rest of its buffer.
session::Range target(engine::Address address, std::uint64_t bytes) {
    return {address, bytes == 0 ? rest_of_buffer(address) : bytes};
}

CUresult decompress(const CUmemDecompressParams* batch, std::size_t count, CUstream stream,
                    session::Call call) {
    // What is refused without a look at the batch need not be one.
    if (refusal() != CUDA_SUCCESS) return call();
    const auto address_of = [](const void* pointer) { return reinterpret_cast<engine::Address>(pointer); };
    std::vector<session::Range> ranges;
    for (const CUmemDecompressParams& each : std::span(batch, batch ? count : 0)) {
        ranges.push_back({address_of(each.src), each.srcNumBytes});
        ranges.push_back(target(address_of(each.dst), each.dstNumBytes));
        ranges.push_back({address_of(each.dstActBytes), sizeof *each.dstActBytes});
    }
    return over_resident(ranges, stream, call);
}

}  // namespace
}  // namespace lms::entry

LMS_FORMS(cuMemBatchDecompressAsync, _ptsz,
          (CUmemDecompressParams * paramsArray, size_t count, unsigned int flags, size_t* errorIndex,
           CUstream stream),
          return lms::entry::decompress(paramsArray, count, Form::stream(stream), [&] {
              return Form::real(paramsArray, count, flags, errorIndex, stream);
          });)

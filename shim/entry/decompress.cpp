// Decompression by the copy engine, which reaches memory on the GPU only.
#include "shim/device/driver_table.h"
#include "shim/entry/context_check.h"
#include "shim/entry/ranges.h"

namespace lms::entry {
namespace {

// What may be written from `address` on: `bytes`, or where that is not told the rest of its buffer.
engine::Range target(core::Address address, std::uint64_t bytes) {
    return {address, bytes == 0 ? rest_of_buffer(address) : bytes};
}

template <typename Real>
CUresult decompress(Real real, CUmemDecompressParams* batch, std::size_t count, unsigned int flags,
                    std::size_t* failed, CUstream stream, bool per_thread) {
    // What is refused without a look at the batch need not be one.
    if (refusal() != CUDA_SUCCESS) return real(batch, count, flags, failed, stream);
    const auto address_of = [](const void* pointer) { return reinterpret_cast<core::Address>(pointer); };
    std::vector<engine::Range> ranges;
    for (const CUmemDecompressParams& each : std::span(batch, batch ? count : 0)) {
        ranges.push_back({address_of(each.src), each.srcNumBytes});
        ranges.push_back(target(address_of(each.dst), each.dstNumBytes));
        ranges.push_back({address_of(each.dstActBytes), sizeof *each.dstActBytes});
    }
    return over_resident(ranges, engine::resolve_stream(stream, per_thread),
                         [&] { return real(batch, count, flags, failed, stream); });
}

}  // namespace
}  // namespace lms::entry

CUresult cuMemBatchDecompressAsync(CUmemDecompressParams* paramsArray, size_t count, unsigned int flags,
                                   size_t* errorIndex, CUstream stream) {
    return lms::entry::decompress(lms::device::driver().cuMemBatchDecompressAsync, paramsArray, count, flags,
                                  errorIndex, stream, false);
}

CUresult cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams* paramsArray, size_t count, unsigned int flags,
                                        size_t* errorIndex, CUstream stream) {
    return lms::entry::decompress(lms::device::driver().cuMemBatchDecompressAsync_ptsz, paramsArray, count,
                                  flags, errorIndex, stream, true);
}

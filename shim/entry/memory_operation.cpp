// Stream memory operations. A wait may last for ever, and what ends it may have to be brought in first; so it
// must hold up no move: the words it looks at stay on the GPU from then on, until their buffer is freed. Of
// one that is captured they are kept by the graph.
#include "shim/device/driver_table.h"
#include "shim/entry/ranges.h"
#include "shim/reach/memory_operations.h"

namespace lms::entry {
namespace {

using engine::Range;

template <typename Call>
CUresult operate(const std::vector<Range>& words, std::span<const engine::WrittenWord> written, bool waits,
                 CUstream stream, Call&& call) {
    const CUresult status = guarded([&]() -> CUresult {
        if (const CUresult error = within_buffers(words); error != CUDA_SUCCESS) return error;
        std::vector<engine::PinnedIn> kept;
        if (!waits || !any_managed(words) || engine::capturing(stream) ||
            engine::pin_resident(words, kept) != CUDA_SUCCESS)
            return over(words, stream, call);
        const CUresult taken = call();
        if (taken == CUDA_SUCCESS) {
            engine::leave_pinned(kept);
        } else {
            engine::let_go(kept);
        }
        return taken;
    });
    if (written.empty()) return status;
    return noted(status, stream, [&] {
        for (const engine::WrittenWord& word : written) engine::note_word(word.at, word.value);
    });
}

// What such a write leaves there; nothing of a smaller one, which is no address.
std::vector<engine::WrittenWord> written_by(bool waits, core::Address at, cuuint64_t value) {
    if (waits) return {};
    return {{at, value}};
}
std::vector<engine::WrittenWord> written_by(bool, core::Address, cuuint32_t) {
    return {};
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

#define LMS_VALUE(symbol, word, waits, per_thread)                                       \
    CUresult symbol(CUstream stream, CUdeviceptr addr, word value, unsigned int flags) { \
        return operate({{addr, sizeof value}}, written_by(waits, addr, value), waits,    \
                       lms::engine::resolve_stream(stream, per_thread),                  \
                       [&] { return driver().symbol(stream, addr, value, flags); });     \
    }
#define LMS_VALUE_FORMS(symbol, word, waits) \
    LMS_VALUE(symbol, word, waits, false)    \
    LMS_VALUE(symbol##_ptsz, word, waits, true)
#define LMS_VALUE_VERSIONS(symbol, word, waits) \
    LMS_VALUE_FORMS(symbol, word, waits)        \
    LMS_VALUE_FORMS(symbol##_v2, word, waits)

LMS_VALUE_VERSIONS(cuStreamWaitValue32, cuuint32_t, true)
LMS_VALUE_VERSIONS(cuStreamWaitValue64, cuuint64_t, true)
LMS_VALUE_VERSIONS(cuStreamWriteValue32, cuuint32_t, false)
LMS_VALUE_VERSIONS(cuStreamWriteValue64, cuuint64_t, false)

#define LMS_VALUE_BATCH(symbol, per_thread)                                                                 \
    CUresult symbol(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,              \
                    unsigned int flags) {                                                                   \
        const auto operations = lms::engine::operations_of(paramArray, count);                              \
        return operate(lms::engine::words_of(operations), lms::engine::written_by(operations),              \
                       lms::engine::any_waits(operations), lms::engine::resolve_stream(stream, per_thread), \
                       [&] { return driver().symbol(stream, count, paramArray, flags); });                  \
    }
LMS_VALUE_BATCH(cuStreamBatchMemOp, false)
LMS_VALUE_BATCH(cuStreamBatchMemOp_ptsz, true)
LMS_VALUE_BATCH(cuStreamBatchMemOp_v2, false)
LMS_VALUE_BATCH(cuStreamBatchMemOp_v2_ptsz, true)

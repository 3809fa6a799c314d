// Stream memory operations. A wait may last for ever, and what ends it may have to be brought in first; so it
// must hold up no move: the words it looks at stay on the GPU from then on, until their buffer is freed. Of
// one that is captured they are kept by the graph.
#include "shim/access/memory_operations.h"
#include "shim/entry/forms.h"
#include "shim/entry/ranges.h"

namespace lms::entry {
namespace {

using session::Range;

CUresult operate(Ranges words, std::span<const access::WrittenWord> written, bool waits, CUstream stream,
                 session::Call call) {
    const CUresult status = guarded([&]() -> CUresult {
        if (const CUresult error = within_buffers(words); error != CUDA_SUCCESS) return error;
        std::vector<session::PinnedIn> kept;
        if (!waits || !any_managed(words) || program::capturing(stream) ||
            session::pin_resident(words, kept) != CUDA_SUCCESS)
            return over(words, stream, call);
        const CUresult taken = session::submit_beside_moves(stream, call);
        if (taken == CUDA_SUCCESS) {
            session::leave_pinned(kept);
        } else {
            session::let_go(kept);
        }
        return taken;
    });
    if (written.empty()) return status;
    return noted(status, stream, [&] {
        for (const access::WrittenWord& word : written) access::note_word(word.at, word.value);
    });
}

// One on `value` at an address. Of what a write leaves there, a smaller value is no address.
template <typename Form, bool kWaits, typename Value>
CUresult operate_on(CUstream stream, CUdeviceptr at, Value value, unsigned flags) {
    const Range word{at, sizeof value};
    const access::WrittenWord written{at, value};
    const bool address = !kWaits && sizeof value == sizeof(engine::Address);
    return operate({&word, 1}, {&written, address ? 1u : 0u}, kWaits, Form::stream(stream),
                   [&] { return Form::real(stream, at, value, flags); });
}

template <typename Form>
CUresult operate_on_all(CUstream stream, unsigned count, CUstreamBatchMemOpParams* list, unsigned flags) {
    const auto operations = access::operations_of(list, count);
    return operate(access::words_of(operations), access::written_by(operations),
                   access::any_waits(operations), Form::stream(stream),
                   [&] { return Form::real(stream, count, list, flags); });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;

#define LMS_VALUE(symbol, type, waits)                                                               \
    LMS_FORMS(symbol, _ptsz, (CUstream stream, CUdeviceptr at, type value, unsigned int flags),      \
              return operate_on<Form, waits>(stream, at, value, flags);)                             \
    LMS_FORMS(symbol##_v2, _ptsz, (CUstream stream, CUdeviceptr at, type value, unsigned int flags), \
              return operate_on<Form, waits>(stream, at, value, flags);)

LMS_VALUE(cuStreamWaitValue32, cuuint32_t, true)
LMS_VALUE(cuStreamWaitValue64, cuuint64_t, true)
LMS_VALUE(cuStreamWriteValue32, cuuint32_t, false)
LMS_VALUE(cuStreamWriteValue64, cuuint64_t, false)

LMS_FORMS(cuStreamBatchMemOp, _ptsz,
          (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* list, unsigned int flags),
          return operate_on_all<Form>(stream, count, list, flags);)
LMS_FORMS(cuStreamBatchMemOp_v2, _ptsz,
          (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* list, unsigned int flags),
          return operate_on_all<Form>(stream, count, list, flags);)

// Memsets.
#include "shim/entry/forms.h"
#include "shim/entry/ranges.h"
#include "shim/entry/transfer.h"

namespace lms::entry {
namespace {

// Bytes of so many values; as many as there can be, where that many go round.
std::uint64_t bytes_of(std::size_t count, std::uint64_t value_bytes) {
    return count > UINT64_MAX / value_bytes ? UINT64_MAX : count * value_bytes;
}

// Rows of values.
struct RowSet {
    bool waits;       // the host does, for it
    CUstream stream;  // resolved
    CUstream handle;  // as the program gave it
    CUdeviceptr to;
    std::size_t pitch;
    std::uint32_t value;
    std::uint32_t value_bytes;
    std::size_t width;  // in values
    std::size_t height;

    // Gives it to the driver, or a part of it.
    CUresult (*call)(const RowSet& part);
};

session::Range span_of(const RowSet& set) {
    if (set.width == 0 || set.height == 0) return {set.to, 0};
    return {set.to, (set.height - 1) * set.pitch + bytes_of(set.width, set.value_bytes)};
}

// Halved like 2D copies.
CUresult submit_parts(const RowSet& set) {
    const session::Range rows[] = {span_of(set)};
    const auto give = [&] { return where_it_is(rows, set.stream, set.waits, [&] { return set.call(set); }); };
    CUresult status = CUDA_SUCCESS;
    note_use(rows, set.stream);
    const auto at_once = [&] { return several_devices() ? give() : set.call(set); };
    if (session::try_fast_path(set.stream, at_once, status)) return status;
    if (program::capturing(set.stream) || !too_large(rows)) return over(rows, set.stream, give);
    const bool by_rows = set.height > 1;
    const std::size_t half = (by_rows ? set.height : set.width) / 2;
    RowSet first = set;
    RowSet second = set;
    (by_rows ? first.height : first.width) = half;
    (by_rows ? second.height : second.width) -= half;
    second.to += by_rows ? half * set.pitch : bytes_of(half, set.value_bytes);
    status = submit_parts(first);
    return status == CUDA_SUCCESS ? submit_parts(second) : status;
}

CUresult submit(const RowSet& set) {
    const session::Range rows[] = {span_of(set)};
    if (const CUresult error = within_buffers(rows); error != CUDA_SUCCESS) return error;
    const CUresult status = submit_parts(set);
    if (!access::any_tables()) return status;
    return noted(status, set.stream, [&] {
        access::note_set({set.to, set.width * set.value_bytes, set.pitch, set.height});
    });
}

template <typename Form, typename Value>
CUresult set(CUdeviceptr to, Value value, std::size_t count, CUstream handle = nullptr) {
    Transfer whole{TransferKind::Set,    Form::kWaits, to, 0, bytes_of(count, sizeof value),
                   Form::stream(handle), handle};
    whole.value = value;
    return submit(whole, [](const Transfer& part) {
        return Form::real_in(part.handle, part.to, static_cast<Value>(part.value),
                             part.bytes / sizeof(Value));
    });
}

template <typename Form, typename Value>
CUresult set_rows(CUdeviceptr to, std::size_t pitch, Value value, std::size_t width, std::size_t height,
                  CUstream handle = nullptr) {
    return submit(RowSet{Form::kWaits, Form::stream(handle), handle, to, pitch, value, sizeof value, width,
                         height, [](const RowSet& part) {
                             return Form::real_in(part.handle, part.to, part.pitch,
                                                  static_cast<Value>(part.value), part.width, part.height);
                         }});
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;

#define LMS_SETS(bits, type)                                                                             \
    LMS_FORMS(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr dst, type value, size_t n),                      \
              return set<Form>(dst, value, n);)                                                          \
    LMS_FORMS(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr dst, type value, size_t n, CUstream stream),   \
              return set<Form>(dst, value, n, stream);)                                                  \
    LMS_FORMS(cuMemsetD2D##bits##_v2, _ptds,                                                             \
              (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),                  \
              return set_rows<Form>(dst, pitch, value, width, height);)                                  \
    LMS_FORMS(cuMemsetD2D##bits##Async, _ptsz,                                                           \
              (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream), \
              return set_rows<Form>(dst, pitch, value, width, height, stream);)

LMS_SETS(8, unsigned char)
LMS_SETS(16, unsigned short)
LMS_SETS(32, unsigned int)

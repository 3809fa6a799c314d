// The retried rows: calls that name no managed memory but may need room on the GPU, or that give a stream
// work without memory: host functions, waits. They go on to the driver as they are; where it is out of
// memory, room is made, on the GPU or for what pins host memory there, and they are tried once more.
#include <tuple>

#include "shim/device/driver_table.h"
#include "shim/entry/forms.h"
#include "shim/entry/guard.h"
#include "shim/session/submit.h"

namespace lms::entry {
namespace {

using device::Driver;

// What of a call's argument outlives the call.
template <typename Form, typename Argument>
struct Noted {
    explicit Noted(Argument) {}
};
template <typename Form>
struct Noted<Form, CUstream> {
    explicit Noted(CUstream stream) : submitting(Form::stream(stream)) {}
    const session::Submitting submitting;
};

constexpr bool pins_host_memory(device::Entry entry) {
    using device::Entry;
    return entry == Entry::cuMemAllocHost || entry == Entry::cuMemAllocHost_v2 ||
           entry == Entry::cuMemHostAlloc || entry == Entry::cuMemHostRegister ||
           entry == Entry::cuMemHostRegister_v2;
}

// The wrapper of one driver function, in that function's own type.
template <device::Entry kEntry, auto Slot>
struct Retried;

template <device::Entry kEntry, typename... Arguments, CUresult (*Driver::*Slot)(Arguments...)>
struct Retried<kEntry, Slot> {
    static CUresult call(Arguments... arguments) {
        return guarded([&] {
            const std::tuple<Noted<Form<kEntry, Slot>, Arguments>...> noted(arguments...);
            const auto call = [&] { return (device::driver().*Slot)(arguments...); };
            if constexpr (pins_host_memory(kEntry)) return session::pin_with_retry(call);
            return session::call_with_oom_retry(call);
        });
    }
};

}  // namespace
}  // namespace lms::entry

#define LMS_RETRIED_HOOK(symbol) nullptr
#define LMS_RETRIED_PASS(symbol) nullptr
#define LMS_RETRIED_ANY(symbol) nullptr
#define LMS_RETRIED_RETRY(symbol) \
    reinterpret_cast<void*>(      \
        &lms::entry::Retried<lms::device::Entry::symbol, &lms::device::Driver::symbol>::call)

// By row; the exports of retried rows jump through it (exports.cpp).
extern "C"
    __attribute__((visibility("hidden"), used)) void* const lms_retried_calls[lms::device::kRowCount] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) LMS_RETRIED_##action(symbol),
#define LMS_LATER LMS_ENTRY
#include "shim/entry_points.def"
};

// Functions that the driver has in two forms, one for each meaning of stream handle 0. They are written once:
//
//   LMS_FORMS(cuName, _ptsz, (CUdeviceptr address, CUstream stream), return work<Form>(address, stream);)
//
// defines cuName and cuName_ptsz. In the body `Form` is the one that was called, as its row of
// entry_points.def has it.
#pragma once

#include <type_traits>

#include "shim/device/driver_table.h"
#include "shim/session/fast_submit.h"

namespace lms::entry {

// Whether the second is the first one's form for threads' own default streams.
constexpr bool are_forms(device::Entry legacy, device::Entry per_thread) {
    return device::row(legacy).base == device::row(per_thread).base &&
           device::row(legacy).stream == device::StreamMode::LEGACY && is_per_thread(device::row(per_thread));
}

template <device::Entry kEntry, auto Slot>
struct Form;

template <device::Entry kEntry, typename... Arguments, CUresult (*device::Driver::*Slot)(Arguments...)>
struct Form<kEntry, Slot> {
    static constexpr bool kPerThread = is_per_thread(device::row(kEntry));
    // It takes no stream, and the host waits for its work.
    static constexpr bool kWaits = !(std::is_same_v<Arguments, CUstream> || ...);

    // What the driver makes of a handle that the program gives.
    static CUstream stream(CUstream handle = nullptr) { return session::resolve_stream(handle, kPerThread); }
    static CUresult real(Arguments... arguments) { return (device::driver().*Slot)(arguments...); }
    // With the handle as the last argument, if it takes one.
    static CUresult real_in(CUstream handle, auto... arguments) {
        if constexpr (kWaits) {
            return real(arguments...);
        } else {
            return real(arguments..., handle);
        }
    }
};

}  // namespace lms::entry

#define LMS_FORM(symbol, parameters, ...)                                                        \
    CUresult symbol parameters {                                                                 \
        using Form = lms::entry::Form<lms::device::Entry::symbol, &lms::device::Driver::symbol>; \
        __VA_ARGS__                                                                              \
    }
#define LMS_FORMS(symbol, suffix, parameters, ...)                                                        \
    static_assert(lms::entry::are_forms(lms::device::Entry::symbol, lms::device::Entry::symbol##suffix)); \
    LMS_FORM(symbol, parameters, __VA_ARGS__)                                                             \
    LMS_FORM(symbol##suffix, parameters, __VA_ARGS__)

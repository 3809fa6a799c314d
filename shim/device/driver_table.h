// The real driver's entry points: one typed pointer per row of entry_points.def.
//
// The driver is found and loaded at the first call, by whichever thread comes first; threads that race load
// it together and agree (no lock is held across dlopen, which may run under the loader's own lock).
//
// No slot is ever null. A function that the installed driver lacks is a stub that answers
// CUDA_ERROR_NOT_SUPPORTED and is named once at `warn`; where there is no driver, every function answers
// CUDA_ERROR_NO_DEVICE.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "shim/device/cuda_api.h"
#include "shim/util/mutex.h"

namespace lms::device {

// Interop functions need foreign headers for their types; the shim only passes them through. So it does with
// most of what came later than the installed header.
using UntypedEntry = CUresult (*)();
#define LMS_TYPE_HOOK(symbol) decltype(&::symbol)
#define LMS_TYPE_RETRY LMS_TYPE_HOOK
#define LMS_TYPE_PASS(symbol) UntypedEntry
#define LMS_TYPE_ANY(symbol) UntypedEntry

// Typed pointers: `driver().cuMemAlloc_v2(&address, bytes)`. Pointers are for the life of the process.
struct Driver {
#define LMS_ENTRY(symbol, base, introduced, stream, action) decltype(&::symbol) symbol;
#define LMS_INTEROP(symbol, base, introduced, stream, action) UntypedEntry symbol;
#define LMS_LATER(symbol, base, introduced, stream, action) LMS_TYPE_##action(symbol) symbol;
#include "shim/entry_points.def"
};
#undef LMS_TYPE_HOOK
#undef LMS_TYPE_RETRY
#undef LMS_TYPE_PASS
#undef LMS_TYPE_ANY

// Such a function in its own type.
template <typename Function>
Function* typed(UntypedEntry function) {
    return reinterpret_cast<Function*>(reinterpret_cast<void*>(function));
}

enum class Entry : std::uint16_t {
#define LMS_ENTRY(symbol, base, introduced, stream, action) symbol,
#define LMS_LATER LMS_ENTRY
#include "shim/entry_points.def"
};

// What stream handle 0 means to a function.
enum class StreamMode : std::uint8_t { NONE, LEGACY, PTDS, PTSZ };

enum class Action : std::uint8_t { HOOK, RETRY, PASS, ANY };

// One row of entry_points.def.
struct Row {
    std::string_view symbol;  // as exported by the driver; zero-terminated
    std::string_view base;    // as cuGetProcAddress knows it; zero-terminated
    int introduced;           // CUDA version of this ABI, 12000 for 12.0
    StreamMode stream;
    Action action;
};

inline constexpr Row kRows[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) \
    Row{#symbol, #base, introduced, StreamMode::stream, Action::action},
#define LMS_LATER LMS_ENTRY
#include "shim/entry_points.def"
};
inline constexpr std::size_t kRowCount = std::size(kRows);
static_assert(sizeof(Driver) == kRowCount * sizeof(void*));

constexpr bool is_per_thread(const Row& row) {
    return row.stream == StreamMode::PTDS || row.stream == StreamMode::PTSZ;
}

constexpr const Row& row(Entry entry) {
    return kRows[static_cast<std::size_t>(entry)];
}

// The row of an exported name, or nullptr.
const Row* find_row(std::string_view symbol);

extern "C" __attribute__((visibility("hidden"))) Driver lms_driver_slots;
extern std::atomic<bool> driver_loaded;
void load_driver();

// The driver's functions, loaded if they were not yet. Never throws; any thread.
inline const Driver& driver() {
    util::check_calling_driver();
    if (!driver_loaded.load(std::memory_order_acquire)) [[unlikely]]
        load_driver();
    return lms_driver_slots;
}

// Whether the installed driver has this function; false where there is no driver.
bool driver_has(Entry entry);

// The driver's function as an address, or nullptr where it lacks it.
void* driver_address(Entry entry);

// Handle of the loaded driver for dlsym, or nullptr where there is none. Never closed.
void* driver_handle();

// The name of a status: "CUDA_ERROR_NOT_SUPPORTED". Static.
const char* error_name(CUresult status);

// Path of the loaded driver as it was found (LMS_DRIVER's as given), empty where there is none.
const char* driver_path();

}  // namespace lms::device

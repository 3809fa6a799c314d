// The exports. Each row of the table becomes a weak function that answers CUDA_ERROR_NOT_SUPPORTED; a
// function of the same name in an api_*.cpp file takes its place. This file must not see cuda.h, whose types
// would clash.
#include "tools/simcuda/driver/entry_table.h"

#include <iterator>

#include "tools/simcuda/driver/unimplemented.h"

#define LMS_ENTRY(symbol, base, introduced, stream, action)                                                 \
    extern "C" __attribute__((weak, visibility("default"))) int symbol() {                                  \
        return simcuda::driver::unimplemented_entry(static_cast<unsigned>(simcuda::driver::Entry::symbol)); \
    }
#include "shim/entry_points.def"

namespace simcuda::driver {
namespace {

const EntryInfo kEntries[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) \
    {#symbol, #base, introduced, StreamForm::stream, reinterpret_cast<void*>(&::symbol)},
#include "shim/entry_points.def"
};

}  // namespace

std::span<const EntryInfo> entries() {
    return kEntries;
}

}  // namespace simcuda::driver

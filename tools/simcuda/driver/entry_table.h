// Every entry point of the driver, from the one table shared with the rest of the project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace simcuda::driver {

// An index into entries(). Include cuda_api.h (not cuda.h) beside this, or macros rename the enumerators.
enum class Entry : std::uint16_t {
#define LMS_ENTRY(symbol, base, introduced, stream, action) symbol,
#include "shim/entry_points.def"
};

enum class StreamForm : std::uint8_t { NONE, LEGACY, PTDS, PTSZ };  // what stream handle 0 means to it

struct EntryInfo {
    const char* symbol;        // exported name
    const char* base;          // name for cuGetProcAddress
    std::uint32_t introduced;  // CUDA version, 12000 is 12.0
    StreamForm form;
    void* address;  // the exported function
};

std::span<const EntryInfo> entries();
inline const EntryInfo& info(Entry entry) {
    return entries()[static_cast<std::size_t>(entry)];
}

}  // namespace simcuda::driver

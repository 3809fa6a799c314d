// The CUDA driver as the program finds it: libcuda.so.1 by the loader's own search, one typed pointer per row
// of entry_points.def. No runtime, no shim.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // the rows are exported names; the header's macros would rename them
#include <cuda.h>
#include <cudaProfiler.h>

#include <string>

namespace facts {

// What a function of the interop headers is here; none is called.
using UntypedEntry = CUresult (*)();

struct Driver {
#define LMS_ENTRY(symbol, base, introduced, stream, action) decltype(&::symbol) symbol;
#define LMS_INTEROP(symbol, base, introduced, stream, action) UntypedEntry symbol;
#include "shim/entry_points.def"
};

// Loads the driver. Returns why not, in one line; empty: it is loaded.
std::string load_driver();

// After load_driver(). No pointer is null: what the installed driver lacks answers CUDA_ERROR_NOT_SUPPORTED.
const Driver& driver();

void* driver_handle();      // for dlsym
std::string driver_path();  // absolute

// "CUDA_ERROR_...", "CUDA_SUCCESS", or the number of a code that the driver does not know.
std::string name_of(CUresult code);

// A driver call that did not succeed.
struct Failure {
    CUresult code;
    std::string call;
};

// Throws Failure unless `code` is CUDA_SUCCESS.
inline void require(CUresult code, const char* call) {
    if (code != CUDA_SUCCESS) throw Failure{code, call};
}

}  // namespace facts

// A driver call that must succeed: CU(cuMemUnmap, address, bytes).
#define CU(function, ...) ::facts::require(::facts::driver().function(__VA_ARGS__), #function)

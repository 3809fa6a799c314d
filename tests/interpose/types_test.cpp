// Every row's C type is the one that NVIDIA publishes for its base name, version and stream mode:
// cudaTypedefs.h has a PFN_<base>_v<version>[_ptds|_ptsz] for each. A wrong symbol, version or mode does not
// compile.
#include <type_traits>

#include "shim/device/cuda_api.h"

#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

#define PFN_NONE(base, introduced) PFN_##base##_v##introduced
#define PFN_LEGACY(base, introduced) PFN_##base##_v##introduced
#define PFN_PTDS(base, introduced) PFN_##base##_v##introduced##_ptds
#define PFN_PTSZ(base, introduced) PFN_##base##_v##introduced##_ptsz

#define LMS_ENTRY(symbol, base, introduced, stream, action) \
    static_assert(std::is_same_v<decltype(&::symbol), PFN_##stream(base, introduced)>, #symbol);
#define LMS_INTEROP(symbol, base, introduced, stream, action)
#if CUDA_VERSION >= 13050
#define LMS_LATER LMS_ENTRY
#endif
#include "shim/entry_points.def"

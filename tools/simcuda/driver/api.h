// The way in: every exported function runs its body through call().
//
//   SIMCUDA_API cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
//       return call(Entry::cuMemAlloc_v2, kUnsafeInCapture, [&](Context& context) {
//           require(address != nullptr, CUDA_ERROR_INVALID_VALUE);
//           ...
//           return CUDA_SUCCESS;
//       });
//   }
//
// call() counts the call for the report, writes SIMCUDA_LOG, applies SIMCUDA_FAIL, refuses calls from host
// functions, before cuInit, without a current context or in a context that has failed, and turns exceptions
// into error codes. A body that takes a Context& needs a current context; one that takes nothing needs cuInit
// only. The export by itself puts the function into entries() and so into cuGetProcAddress.
#pragma once

#include <new>
#include <type_traits>
#include <utility>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/entry_table.h"

#define SIMCUDA_API extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI

#define SIMCUDA_EXPAND(...) __VA_ARGS__

// Defines `symbol` and its per-thread default stream form `symbol##suffix` (_ptds or _ptsz) over one body,
// which sees the parameters and `site` (Site below). `arguments` repeats the parameters' names.
#define SIMCUDA_STREAM_API(symbol, suffix, parameters, arguments)                                         \
    static CUresult symbol##_body(::simcuda::driver::Site site, SIMCUDA_EXPAND parameters);               \
    SIMCUDA_API symbol parameters {                                                                       \
        return symbol##_body({::simcuda::driver::Entry::symbol, false}, SIMCUDA_EXPAND arguments);        \
    }                                                                                                     \
    SIMCUDA_API symbol##suffix parameters {                                                               \
        return symbol##_body({::simcuda::driver::Entry::symbol##suffix, true}, SIMCUDA_EXPAND arguments); \
    }                                                                                                     \
    static CUresult symbol##_body(::simcuda::driver::Site site, SIMCUDA_EXPAND parameters)

namespace simcuda::driver {

class Context;

// Which of the two forms of a stream call was called.
struct Site {
    Entry entry;
    bool per_thread;  // handle 0 is the thread's own default stream
};

// Thrown inside a body to leave it with an error code. Never crosses call().
struct Failure {
    CUresult code;
};

inline void require(bool condition, CUresult otherwise) {
    if (!condition) throw Failure{otherwise};
}

// Flags for call().
enum CallFlags : unsigned {
    kPlain = 0,
    kBeforeInit = 1,       // allowed before cuInit (and inside host functions)
    kUnsafeInCapture = 2,  // "potentially unsafe" while a stream captures in global or thread-local mode
    kAfterFailure = 4,     // takes a Context&, and works in one that has failed
    kNotAfterFailure = 8,  // takes none, but is refused if there is a current context and it has failed
};

namespace detail {
// Checks and counts. On CUDA_SUCCESS, `context` (if not null) was given the current context.
CUresult begin(Entry entry, unsigned flags, Context** context) noexcept;
CUresult end(Entry entry, CUresult result) noexcept;
}  // namespace detail

template <class Body>
CUresult call(Entry entry, unsigned flags, Body&& body) noexcept {
    constexpr bool kNeedsContext = std::is_invocable_v<Body, Context&>;
    Context* context = nullptr;
    CUresult result = detail::begin(entry, flags, kNeedsContext ? &context : nullptr);
    if (result == CUDA_SUCCESS) {
        try {
            if constexpr (kNeedsContext) {
                result = body(*context);
            } else {
                result = body();
            }
        } catch (const Failure& failure) {
            result = failure.code;
        } catch (const std::bad_alloc&) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } catch (...) {
            result = CUDA_ERROR_UNKNOWN;
        }
    }
    return detail::end(entry, result);
}

template <class Body>
CUresult call(Entry entry, Body&& body) noexcept {
    return call(entry, kPlain, std::forward<Body>(body));
}

// Marks the calling thread as running a host function of a stream: CUDA calls fail while it lives.
class HostFunctionScope {
  public:
    HostFunctionScope();
    ~HostFunctionScope();
    HostFunctionScope(const HostFunctionScope&) = delete;
    HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

}  // namespace simcuda::driver

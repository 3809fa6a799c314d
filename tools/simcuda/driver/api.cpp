#include "tools/simcuda/driver/api.h"

#include <cstring>
#include <string>

#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/graph/capture.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/report.h"

namespace simcuda::driver {
namespace {

thread_local int host_function_depth = 0;

// SIMCUDA_FAIL. A rule counts the calls of the exact name it gives, or of all forms of a base name.
bool injected_failure(Entry entry) {
    const std::uint64_t nth = count_call(entry);
    const std::uint64_t nth_of_base = count_base(info(entry).base);
    for (const FailRule& rule : knobs().fail) {
        if (rule.name == info(entry).base ? rule.nth == nth_of_base
                                          : rule.name == info(entry).symbol && rule.nth == nth) {
            return true;
        }
    }
    return false;
}

CUresult check(Entry entry, unsigned flags, Context** context) {
    if (injected_failure(entry)) return CUDA_ERROR_OUT_OF_MEMORY;
    if ((flags & kBeforeInit) != 0) return CUDA_SUCCESS;
    if (host_function_depth != 0) {
        violation(std::string(info(entry).symbol) + " called from a host function");
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
    Context* current = current_context();
    if (context != nullptr) {
        if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        if (!is_live(current)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if ((flags & kAfterFailure) == 0 && current->error() != CUDA_SUCCESS) return current->error();
        *context = current;
    } else if ((flags & kNotAfterFailure) != 0 && current != nullptr && current->error() != CUDA_SUCCESS) {
        return current->error();
    }
    return (flags & kUnsafeInCapture) != 0 ? capture_check_unsafe_call() : CUDA_SUCCESS;
}

}  // namespace

namespace detail {

CUresult begin(Entry entry, unsigned flags, Context** context) noexcept {
    start_report();
    return check(entry, flags, context);
}

CUresult end(Entry entry, CUresult result) noexcept {
    log_call(entry, result);
    return result;
}

}  // namespace detail

HostFunctionScope::HostFunctionScope() {
    ++host_function_depth;
}
HostFunctionScope::~HostFunctionScope() {
    --host_function_depth;
}

}  // namespace simcuda::driver

#include "tools/simcuda/driver/api.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/graph/capture.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/report.h"

namespace simcuda::driver {
namespace {

thread_local int host_function_depth = 0;

// After these nothing of the context works any more.
bool is_sticky(CUresult error) {
    switch (error) {
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_MPS_RPC_FAILURE:
        case CUDA_ERROR_MPS_CLIENT_TERMINATED:
            return true;
        default:
            return false;
    }
}

constexpr std::string_view kAboutMemory[] = {
    "cuArray",      "cuCtxCreate",    "cuCtxDestroy",   "cuDevicePrimaryCtxRe", "cuGraphExecDestroy",
    "cuGraphInst",  "cuLibrary",      "cuMemAlloc",     "cuMemCreate",          "cuMemFree",
    "cuMemGetInfo", "cuMemHost",      "cuMemPool",      "cuMemRelease",         "cuMipmapped",
    "cuModuleLoad", "cuModuleUnload", "cuStreamCreate", "cuStreamDestroy"};

// SIMCUDA_FAIL. A rule counts the calls of the exact name it gives, or of all forms of a base name.
CUresult injected_failure(Entry entry) {
    const std::uint64_t nth = count_call(entry);
    const std::uint64_t nth_of_base = count_base(info(entry).base);
    for (const FailRule& rule : knobs().fail) {
        const bool of_base = rule.name == info(entry).base;
        const std::uint64_t number = of_base ? nth_of_base : nth;
        if ((of_base || rule.name == info(entry).symbol) && rule.nth <= number && number <= rule.last) {
            const auto error = static_cast<CUresult>(rule.error);
            log_line((std::string(info(entry).symbol) + " is made to fail").c_str());
            if (Context* const current = current_context(); is_sticky(error) && is_live(current))
                current->fail(error);
            return error;
        }
    }
    return CUDA_SUCCESS;
}

// What takes or frees memory, or asks for it: other processes on the same GPUs notice when. (Frees in stream
// order happen when the stream comes to them, by the machine's clock.)
bool others_notice(Entry entry) {
    static const std::vector<bool>& notice = *new std::vector<bool>([] {
        std::vector<bool> all;
        for (const EntryInfo& each : entries()) {
            const std::string_view base = each.base;
            all.push_back(
                std::any_of(std::begin(kAboutMemory), std::end(kAboutMemory),
                            [&](std::string_view begin) { return base.substr(0, begin.size()) == begin; }));
        }
        return all;
    }());
    return notice[static_cast<std::size_t>(entry)];
}

CUresult check(Entry entry, unsigned flags, Context** context) {
    if (const CUresult failure = injected_failure(entry); failure != CUDA_SUCCESS) return failure;
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
    begin_call(others_notice(entry));
    return check(entry, flags, context);
}

CUresult end(Entry entry, CUresult result) noexcept {
    log_call(entry, result);
    end_call();
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

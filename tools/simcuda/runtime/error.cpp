#include "tools/simcuda/runtime/error.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>

#include "tools/simcuda/runtime/unimplemented.h"

namespace simcuda::runtime {
namespace {

struct Description {
    cudaError_t error;
    const char* name;
    const char* text;
};

constexpr Description kDescriptions[] = {
#define RT_ERROR(name, text) {name, #name, text},
#include "tools/simcuda/errors.def"
};

const Description* describe(int error) {
    auto it = std::lower_bound(std::begin(kDescriptions), std::end(kDescriptions), error,
                               [](const Description& a, int value) { return a.error < value; });
    return it != std::end(kDescriptions) && it->error == error ? it : nullptr;
}

// These leave the context unusable, so that every later call answers them again until the device is reset.
bool sticky(cudaError_t error) {
    switch (error) {
        case cudaErrorECCUncorrectable:
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
            return true;
        default:
            return false;
    }
}

std::atomic<unsigned> g_resets{0};

struct LastError {
    cudaError_t error = cudaSuccess;
    unsigned resets = 0;  // g_resets when it was recorded

    cudaError_t current() const { return sticky(error) && resets != g_resets.load() ? cudaSuccess : error; }
};
thread_local LastError t_last;

}  // namespace

cudaError_t to_runtime_error(CUresult result) {
    return describe(result) ? static_cast<cudaError_t>(result) : cudaErrorUnknown;
}

cudaError_t record(cudaError_t error) {
    if (error != cudaSuccess) t_last = {error, g_resets.load()};
    return error;
}

int answer_unimplemented(const char* name, bool named_before) {
    if (!named_before) {
        std::fprintf(stderr, "simcuda: the simulated runtime lacks %s: cudaErrorNotSupported\n", name);
    }
    return record(cudaErrorNotSupported);
}

void forget_sticky_errors() {
    ++g_resets;
}

}  // namespace simcuda::runtime

using namespace simcuda::runtime;

cudaError_t cudaGetLastError() {
    cudaError_t error = t_last.current();
    if (!sticky(error)) t_last.error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() {
    return t_last.current();
}

const char* cudaGetErrorName(cudaError_t error) {
    const Description* description = describe(error);
    return description ? description->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
    const Description* description = describe(error);
    return description ? description->text : "unrecognized error code";
}

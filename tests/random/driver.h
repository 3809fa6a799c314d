// The driver, by the name every program asks for: the shim where it is preloaded.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "shim/device/cuda_api.h"

namespace rnd {

void* driver_function(const char* name);

// Calls of the program's that may fail without being wrong, because calls are made to fail (SIMCUDA_FAIL): so
// many. A call that fails is made again, until it succeeds or has answered one error more often than that.
void allow_failures(unsigned count);
unsigned allowed_failures();
// " cuMemAlloc_v2=2 ...": those that succeeded when made again, with what they answered before.
std::string failures();
void note_failure(const char* name, CUresult result);

// The call that took longest so far, as "MICROSECONDS NAME". Any thread.
std::string longest_call();
void note_call(const char* name, std::chrono::steady_clock::duration took);

template <typename Function>
struct DriverCall;

template <typename... Arguments>
struct DriverCall<CUresult (*)(Arguments...)> {
    const char* name;
    CUresult (*function)(Arguments...);

    CUresult operator()(Arguments... arguments) const {
        const auto begin = std::chrono::steady_clock::now();
        const CUresult result = function(arguments...);
        note_call(name, std::chrono::steady_clock::now() - begin);
        const unsigned allowed = allowed_failures();
        if (allowed == 0 || !is_failure(result)) return result;
        std::vector<CUresult> errors{result};
        while (true) {
            const CUresult again = function(arguments...);
            if (!is_failure(again)) {
                for (const CUresult error : errors) note_failure(name, error);
                return again;
            }
            errors.push_back(again);
            if (std::count(errors.begin(), errors.end(), again) > allowed) return again;
        }
    }

  private:
    static bool is_failure(CUresult result) {
        return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
    }
};

#define CU(name)                                                                        \
    ([] {                                                                               \
        static const ::rnd::DriverCall<decltype(&::name)> driver_call_{                 \
            #name, reinterpret_cast<decltype(&::name)>(::rnd::driver_function(#name))}; \
        return driver_call_;                                                            \
    }())

}  // namespace rnd

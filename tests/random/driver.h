// The driver, by the name every program asks for: the shim where it is preloaded.
#pragma once

#include "shim/device/cuda_api.h"

namespace rnd {

void* driver_function(const char* name);

#define CU(name)                                                                                             \
    ([] {                                                                                                    \
        static const auto driver_call_ = reinterpret_cast<decltype(&::name)>(::rnd::driver_function(#name)); \
        return driver_call_;                                                                                 \
    }())

}  // namespace rnd

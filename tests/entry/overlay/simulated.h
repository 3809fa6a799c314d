// The simulated driver behind the overlay, which no answer goes on to after the end.
#pragma once

#include "tests/entry/overlay/record.h"
#include "tests/entry/where.h"

inline CUresult overlay_ended() {
    return CUDA_ERROR_DEINITIALIZED;
}

#undef SIM
#define SIM(name)                                                                                        \
    (reinterpret_cast<decltype(&::name)>(overlay_deinitialized ? reinterpret_cast<void*>(&overlay_ended) \
                                                               : ::where::simulated(#name)))

// The functions that forwards.def lists.
#include "tools/simcuda/runtime/call.h"

using namespace simcuda::runtime;

#define RT_FORWARD(runtime, driver) RT_EXPORT(runtime, forward<&Driver::driver, Need::Context>)
#define RT_FORWARD_DRIVER(runtime, driver) RT_EXPORT(runtime, forward<&Driver::driver, Need::Driver>)
#define RT_FORWARD_STREAM(runtime, driver) \
    RT_FORWARD(runtime, driver)            \
    RT_FORWARD(runtime##_ptsz, driver##_ptsz)
#include "tools/simcuda/runtime/forwards.def"

// What CUDA's device runtime offers kernels as functions: vprintf, __assertfail, malloc, free.
#pragma once

#include "tools/simcuda/exec/abi.h"

namespace simcuda::exec {

u32 device_print(sc_thread* thread, u64 format, u64 arguments);
void device_assert_fail(sc_thread* thread, u64 message, u64 file, u32 line, u64 function);
u64 device_allocate(sc_thread* thread, u64 bytes);
void device_release(sc_thread* thread, u64 address);

// Writes to stdout what kernels on this thread have printed.
void flush_output();

}  // namespace simcuda::exec

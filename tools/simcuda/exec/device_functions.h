// What kernels call: of CUDA's device runtime vprintf, __assertfail, malloc, free and what
// gives work to streams; for texture
// and surface instructions the access, which checks the handle.
#pragma once

#include "tools/simcuda/exec/abi.h"

namespace simcuda::exec {

u32 device_print(sc_thread* thread, u64 format, u64 arguments);
void device_assert_fail(sc_thread* thread, u64 message, u64 file, u32 line, u64 function);
u64 device_allocate(sc_thread* thread, u64 bytes);
void device_release(sc_thread* thread, u64 address);

u64 device_call(sc_thread* thread, sc_call call, const u64* arguments);

void device_fetch(sc_thread* thread, u32 access, u64 texture, const u32* at, const float* level, u32* texel);
void device_gather(sc_thread* thread, u32 channel, u64 texture, const u32* at, u32* texels);
u64 device_surface(sc_thread* thread, u32 access, u64 surface, const u32* at, u32 bytes);
u32 device_query(sc_thread* thread, sc_query what, u64 handle);

// Writes to stdout what kernels on this thread have printed.
void flush_output();

}  // namespace simcuda::exec

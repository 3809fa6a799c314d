// What kernels call: of CUDA's device runtime vprintf, __assertfail, malloc, free and launches; for texture
// and surface instructions the access, which checks the handle.
#pragma once

#include "tools/simcuda/exec/abi.h"

namespace simcuda::exec {

u32 device_print(sc_thread* thread, u64 format, u64 arguments);
void device_assert_fail(sc_thread* thread, u64 message, u64 file, u32 line, u64 function);
u64 device_allocate(sc_thread* thread, u64 bytes);
void device_release(sc_thread* thread, u64 address);

// A launch is prepared, which gives the device address its parameters are written to, and then made.
u64 device_prepare_launch(sc_thread* thread, u64 kernel, const u32* grid, const u32* block, u32 shared_bytes);
u32 device_launch(sc_thread* thread, u64 parameters, u64 stream);

void device_fetch(sc_thread* thread, u32 access, u64 texture, const u32* at, u32* texel);
void device_gather(sc_thread* thread, u32 channel, u64 texture, const u32* at, u32* texels);
u64 device_surface(sc_thread* thread, u32 access, u64 surface, const u32* at, u32 bytes);
u32 device_query(sc_thread* thread, sc_query what, u64 handle);

// Writes to stdout what kernels on this thread have printed.
void flush_output();

}  // namespace simcuda::exec

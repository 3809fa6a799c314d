// Functions that a module declares and no module defines: those every device has, and CUDA's device runtime
// (libcudadevrt.a), whose place is taken by the simulator's own.
#pragma once

#include <string_view>

#include "tools/simcuda/exec/abi.h"

namespace simcuda::ptx {

// One that is a call of sc_runtime.
struct DeviceCall {
    std::string_view name;
    exec::sc_call call;
    // A letter for each argument: i 32 bits, l 64 bits, s a stream, p a stream where 0 is the thread's own,
    // a a structure.
    std::string_view arguments;
    char result;         // i or l
    bool waits = false;  // for other threads
};

const DeviceCall* find_device_call(std::string_view name);  // null: none

// Whether a linker finds the name by itself, and whether with NVIDIA's device runtime. Not all can be called.
bool is_builtin_function(std::string_view name);
bool is_device_runtime_function(std::string_view name);

}  // namespace simcuda::ptx

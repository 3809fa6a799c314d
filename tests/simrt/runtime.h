// The simulated runtime inside the body of a SIM_TEST, beside the driver it runs on.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <filesystem>

#include "tests/simcuda/sim.h"

namespace sim {

inline void* runtime_symbol(const char* name) {
    static void* const library = ::dlopen(
        (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "sim/libcudart.so.13")
            .c_str(),
        RTLD_NOW);
    void* found = library != nullptr ? ::dlsym(library, name) : nullptr;
    if (found == nullptr) {
        failed(__FILE__, __LINE__, std::string("the runtime does not export ") + name);
        stop();
    }
    return found;
}

}  // namespace sim

// The runtime's function.
#define RT(function) (reinterpret_cast<decltype(&::function)>(::sim::runtime_symbol(#function)))

// The call answers the code.
#define RT_ANSWERS(code, function, ...)                                                        \
    do {                                                                                       \
        const cudaError_t sim_error = RT(function)(__VA_ARGS__);                               \
        if (sim_error != (code)) {                                                             \
            ::sim::failed(__FILE__, __LINE__,                                                  \
                          #function " -> " + std::to_string(sim_error) + ", expected " #code); \
        }                                                                                      \
    } while (0)

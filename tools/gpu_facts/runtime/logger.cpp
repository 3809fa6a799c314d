// Stands in front of the driver (its SONAME is libcuda.so.1, and it is preloaded) for program.cu and writes a
// line to stdout per call that matters here: what is loaded, and which launch arrives. Everything else goes
// straight to the driver at FACTS_DRIVER.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

namespace {

// Handles as they were given out. The program has one thread.
std::set<const void*> kernels, functions;

void* real_driver() {
    static void* const handle = [] {
        const char* const path = std::getenv("FACTS_DRIVER");
        return path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }();
    return handle;
}

const char* kind_of_handle(const void* handle) {
    if (functions.contains(handle)) return "CUfunction";
    return kernels.contains(handle) ? "CUkernel" : "a handle not seen before";
}

// An image says by its first word what it is.
std::string kind_of_image(const void* image) {
    unsigned first = 0;
    std::memcpy(&first, image, sizeof first);
    switch (first) {
        case 0x466243b1:
            return "fat binary wrapper";
        case 0xBA55ED50:
            return "fat binary";
        case 0x464C457F:
            return "ELF";
    }
    char text[32];
    std::snprintf(text, sizeof text, "first word 0x%08x", first);
    return text;
}

// One driver function each: `real` is filled in when it is looked up; call() stands in for it.
namespace load_library {
decltype(&::cuLibraryLoadData) real;
CUresult call(CUlibrary* library, const void* code, CUjit_option* jit, void** jit_values, unsigned jit_count,
              CUlibraryOption* options, void** values, unsigned count) {
    std::printf("cuLibraryLoadData %s; JIT options: %u; library options:", kind_of_image(code).c_str(),
                jit_count);
    for (unsigned i = 0; i < count; ++i) std::printf(" %d", static_cast<int>(options[i]));
    std::printf("%s\n", count == 0 ? " none" : "");
    return real(library, code, jit, jit_values, jit_count, options, values, count);
}
}  // namespace load_library

namespace load_module {
decltype(&::cuModuleLoadData) real;
CUresult call(CUmodule* module, const void* image) {
    std::printf("cuModuleLoadData %s\n", kind_of_image(image).c_str());
    return real(module, image);
}
}  // namespace load_module

namespace get_kernel {
decltype(&::cuLibraryGetKernel) real;
CUresult call(CUkernel* kernel, CUlibrary library, const char* name) {
    const CUresult status = real(kernel, library, name);
    if (status == CUDA_SUCCESS) kernels.insert(*kernel);
    std::printf("cuLibraryGetKernel %s\n", name);
    return status;
}
}  // namespace get_kernel

namespace get_function {
decltype(&::cuKernelGetFunction) real;
CUresult call(CUfunction* function, CUkernel kernel) {
    const CUresult status = real(function, kernel);
    if (status == CUDA_SUCCESS) functions.insert(*function);
    std::printf("cuKernelGetFunction of a %s\n", kind_of_handle(kernel));
    return status;
}
}  // namespace get_function

namespace get_module_function {
decltype(&::cuModuleGetFunction) real;
CUresult call(CUfunction* function, CUmodule module, const char* name) {
    const CUresult status = real(function, module, name);
    if (status == CUDA_SUCCESS) functions.insert(*function);
    std::printf("cuModuleGetFunction %s\n", name);
    return status;
}
}  // namespace get_module_function

// `per_thread` tells the two ABIs of a launch apart.
template <bool per_thread>
struct LaunchKernel {
    static inline decltype(&::cuLaunchKernel) real;
    static CUresult call(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                         unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
        std::printf("cuLaunchKernel%s of a %s, arguments by %s\n", per_thread ? "_ptsz" : "",
                    kind_of_handle(function), extra != nullptr ? "extra" : "pointers");
        return real(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
    }
};

template <bool per_thread>
struct LaunchKernelEx {
    static inline decltype(&::cuLaunchKernelEx) real;
    static CUresult call(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
        std::printf("cuLaunchKernelEx%s of a %s, arguments by %s; attributes: %u\n",
                    per_thread ? "_ptsz" : "", kind_of_handle(function),
                    extra != nullptr ? "extra" : "pointers", config->numAttrs);
        return real(config, function, parameters, extra);
    }
};

template <bool per_thread>
struct LaunchCooperativeKernel {
    static inline decltype(&::cuLaunchCooperativeKernel) real;
    static CUresult call(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                         unsigned bz, unsigned shared, CUstream stream, void** parameters) {
        std::printf("cuLaunchCooperativeKernel%s of a %s\n", per_thread ? "_ptsz" : "",
                    kind_of_handle(function));
        return real(function, gx, gy, gz, bx, by, bz, shared, stream, parameters);
    }
};

// Keeps what the driver gave and gives the stand-in instead.
template <class Function>
void stand_in(void** found, Function& real, Function call) {
    real = reinterpret_cast<Function>(*found);
    *found = reinterpret_cast<void*>(call);
}

template <template <bool> class Launch>
void stand_in_launch(void** found, bool per_thread) {
    per_thread ? stand_in(found, Launch<true>::real, &Launch<true>::call)
               : stand_in(found, Launch<false>::real, &Launch<false>::call);
}

// What the driver gives for a lookup, written down and with the stand-in in its place.
void arrive(const char* symbol, int version, cuuint64_t flags, CUresult result, void** found);

// The runtime looks up the lookup itself, in both its ABIs, and goes on with what it got.
namespace look_up_old {
CUresult (*real)(const char*, void**, int, cuuint64_t);
CUresult call(const char* symbol, void** found, int version, cuuint64_t flags) {
    const CUresult result = real(symbol, found, version, flags);
    arrive(symbol, version, flags, result, found);
    return result;
}
}  // namespace look_up_old

namespace look_up {
decltype(&::cuGetProcAddress_v2) real;
CUresult call(const char* symbol, void** found, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
    const CUresult result = real(symbol, found, version, flags, status);
    arrive(symbol, version, flags, result, found);
    return result;
}
}  // namespace look_up

void arrive(const char* symbol, int version, cuuint64_t flags, CUresult result, void** found) {
    std::printf("lookup %s %d %llu\n", symbol, version, static_cast<unsigned long long>(flags));
    if (result != CUDA_SUCCESS || found == nullptr || *found == nullptr) return;
    const std::string_view name = symbol;
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    if (name == "cuGetProcAddress" && version < 12000) stand_in(found, look_up_old::real, &look_up_old::call);
    if (name == "cuGetProcAddress" && version >= 12000) stand_in(found, look_up::real, &look_up::call);
    if (name == "cuLibraryLoadData") stand_in(found, load_library::real, &load_library::call);
    if (name == "cuModuleLoadData") stand_in(found, load_module::real, &load_module::call);
    if (name == "cuLibraryGetKernel") stand_in(found, get_kernel::real, &get_kernel::call);
    if (name == "cuKernelGetFunction") stand_in(found, get_function::real, &get_function::call);
    if (name == "cuModuleGetFunction") stand_in(found, get_module_function::real, &get_module_function::call);
    if (name == "cuLaunchKernel") stand_in_launch<LaunchKernel>(found, per_thread);
    if (name == "cuLaunchKernelEx") stand_in_launch<LaunchKernelEx>(found, per_thread);
    if (name == "cuLaunchCooperativeKernel") stand_in_launch<LaunchCooperativeKernel>(found, per_thread);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(
    const char* symbol, void** found, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
    if (look_up::real == nullptr) {
        // A line at a time, so that a crash loses none.
        std::setvbuf(stdout, nullptr, _IOLBF, 0);
        void* const exported = dlsym(real_driver(), "cuGetProcAddress_v2");
        if (exported == nullptr) return CUDA_ERROR_NOT_FOUND;
        look_up::real = reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(exported);
    }
    return look_up::call(symbol, found, version, flags, status);
}

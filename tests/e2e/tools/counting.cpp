// A tool that is preloaded before the shim and takes the driver's functions for itself, as profilers do: by
// dlsym, which it hooks past everybody else's, and by cuGetProcAddress. At its end it writes what it counted
// into the file that TOOL_COUNTS names.
#include <cuda.h>
#include <dlfcn.h>
#undef cuGetProcAddress

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

GetProcAddress next_get_proc_address = nullptr;
decltype(&cuLaunchKernel) next_launch = nullptr;
decltype(&cuMemAlloc_v2) next_alloc = nullptr;
decltype(&cuMemFree_v2) next_free = nullptr;
std::atomic<int> launches = 0, allocations = 0, frees = 0;

CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
    ++launches;
    return next_launch(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

CUresult alloc(CUdeviceptr* address, std::size_t bytes) {
    ++allocations;
    return next_alloc(address, bytes);
}

CUresult free_memory(CUdeviceptr address) {
    ++frees;
    return next_free(address);
}

CUresult get_proc_address(const char* name, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* found);

// What the program is given for `function`.
template <typename Function>
void* take(void* function, Function& next, Function own) {
    next = reinterpret_cast<Function>(function);
    return reinterpret_cast<void*>(own);
}
void* instead_of(void* function, const char* name) {
    if (function == nullptr || name == nullptr) return function;
    if (std::strcmp(name, "cuGetProcAddress_v2") == 0)
        return take(function, next_get_proc_address, get_proc_address);
    if (std::strcmp(name, "cuLaunchKernel") == 0) return take(function, next_launch, launch);
    if (std::strcmp(name, "cuMemAlloc") == 0) return take(function, next_alloc, alloc);
    if (std::strcmp(name, "cuMemFree") == 0) return take(function, next_free, free_memory);
    return function;
}

CUresult get_proc_address(const char* name, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* found) {
    const CUresult result = next_get_proc_address(name, function, version, flags, found);
    if (result == CUDA_SUCCESS) *function = instead_of(*function, name);
    return result;
}

}  // namespace

extern "C" void* dlsym(void* handle, const char* name) {
    static const auto next =
        reinterpret_cast<void* (*)(void*, const char*)>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
    return instead_of(next(handle, name), name);
}

__attribute__((destructor)) static void tell() {
    const char* const path = std::getenv("TOOL_COUNTS");
    std::FILE* const file = path ? std::fopen(path, "w") : nullptr;
    if (file == nullptr) return;
    std::fprintf(file, "%d %d %d\n", launches.load(), allocations.load(), frees.load());
    std::fclose(file);
}

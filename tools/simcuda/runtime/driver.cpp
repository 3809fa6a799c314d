#include "tools/simcuda/runtime/driver.h"

#include <dlfcn.h>

#include <string_view>

#include "tools/simcuda/runtime/error.h"

namespace simcuda::runtime {
namespace {

CUresult missing() {
    return CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
}

bool per_thread(std::string_view stream) {
    return stream == "PTDS" || stream == "PTSZ";
}

struct Loader {
    decltype(&::cuGetProcAddress_v2) get_proc_address;

    template <class Function>
    void find(Function& function, const char* base, int introduced, const char* stream) const {
        void* found = nullptr;
        CUdriverProcAddressQueryResult status{};
        cuuint64_t flags = per_thread(stream) ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
        CUresult result = get_proc_address(base, &found, introduced, flags, &status);
        // Called through the type of what it stands for; the calling convention lets a callee ignore
        // arguments.
        if (result != CUDA_SUCCESS || !found) found = reinterpret_cast<void*>(&missing);
        function = reinterpret_cast<Function>(found);
    }
};

struct Loaded {
    Driver table{};
    cudaError_t error = cudaSuccess;

    Loaded() {
        error = load();
        if (error == cudaSuccess) error = to_runtime_error(table.cuInit(0));
    }

    cudaError_t load() {
        void* library = dlopen("libcuda.so.1", RTLD_NOW);
        if (!library) return cudaErrorInsufficientDriver;
        Loader loader{
            reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"))};
        if (!loader.get_proc_address) return cudaErrorInsufficientDriver;
        void* nameless = nullptr;
        loader.find(nameless, "", CUDART_VERSION, "NONE");  // NVIDIA's asks this first; nobody may mind
#define LMS_ENTRY(symbol, base, introduced, stream, action) \
    loader.find(table.symbol, #base, introduced, #stream);
#define LMS_INTEROP(symbol, base, introduced, stream, action)
#include "shim/entry_points.def"
        int version = 0;
        if (table.cuDriverGetVersion(&version) != CUDA_SUCCESS) return cudaErrorInsufficientDriver;
        bool same_major_or_newer = version / 1000 >= CUDART_VERSION / 1000;
        return same_major_or_newer ? cudaSuccess : cudaErrorInsufficientDriver;
    }
};

}  // namespace

const Driver* driver(cudaError_t& error) {
    static const Loaded* loaded = new Loaded;  // never freed: programs call CUDA from exit handlers
    error = loaded->error;
    return error == cudaSuccess ? &loaded->table : nullptr;
}

}  // namespace simcuda::runtime

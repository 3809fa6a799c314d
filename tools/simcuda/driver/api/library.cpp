// cuLibrary* and cuKernel*: programs and kernels for all contexts.
#include "tools/simcuda/driver/library.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/function_attributes.h"
#include "tools/simcuda/driver/jit.h"

using namespace simcuda::driver;

namespace {

CUresult load(CUlibrary* library, const void* image, unsigned count, const CUjit_option* options,
              void** values) {
    require(library != nullptr, CUDA_ERROR_INVALID_VALUE);
    JitLog log(count, options, values);
    *library = load_library(translate_image(image, &log))->handle();
    return CUDA_SUCCESS;
}

CUresult answer(const Module::Global& global, CUdeviceptr* address, std::size_t* bytes) {
    if (address) *address = global.address;
    if (bytes) *bytes = global.bytes;
    return CUDA_SUCCESS;
}

}  // namespace

// Library options say how the image's memory may be treated; the image is never kept here.
SIMCUDA_API cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option* options, void** values,
                              unsigned int count, CUlibraryOption*, void**, unsigned int) {
    return call(Entry::cuLibraryLoadData, [&] { return load(library, image, count, options, values); });
}

SIMCUDA_API cuLibraryLoadFromFile(CUlibrary* library, const char* file, CUjit_option* options, void** values,
                                  unsigned int count, CUlibraryOption*, void**, unsigned int) {
    return call(Entry::cuLibraryLoadFromFile,
                [&] { return load(library, read_image(file).c_str(), count, options, values); });
}

SIMCUDA_API cuLibraryUnload(CUlibrary library) {
    return call(Entry::cuLibraryUnload, kUnsafeInCapture, [&] {
        unload_library(library);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    return call(Entry::cuLibraryGetKernel, [&] {
        require(kernel != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
        for (const auto& candidate : checked_library(library)->kernels()) {
            if (candidate->kernel().name == name) {
                *kernel = candidate->kernel_handle();
                return CUDA_SUCCESS;
            }
        }
        return CUDA_ERROR_NOT_FOUND;
    });
}

SIMCUDA_API cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
    return call(Entry::cuLibraryGetKernelCount, [&] {
        require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
        *count = static_cast<unsigned>(checked_library(library)->kernels().size());
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int room, CUlibrary library) {
    return call(Entry::cuLibraryEnumerateKernels, [&] {
        require(kernels != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto& all = checked_library(library)->kernels();
        for (unsigned i = 0; i < room && i < all.size(); ++i) kernels[i] = all[i]->kernel_handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLibraryGetModule(CUmodule* module, CUlibrary library) {
    return call(Entry::cuLibraryGetModule, [&](Context& context) {
        require(module != nullptr, CUDA_ERROR_INVALID_VALUE);
        *module = checked_library(library)->in(context)->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary library,
                               const char* name) {
    return call(Entry::cuLibraryGetGlobal, [&](Context& context) {
        require((address != nullptr || bytes != nullptr) && name != nullptr, CUDA_ERROR_INVALID_VALUE);
        return answer(checked_library(library)->in(context)->global(name), address, bytes);
    });
}

SIMCUDA_API cuLibraryGetManaged(CUdeviceptr* address, std::size_t* bytes, CUlibrary library,
                                const char* name) {
    return call(Entry::cuLibraryGetManaged, [&](Context& context) {
        require((address != nullptr || bytes != nullptr) && name != nullptr, CUDA_ERROR_INVALID_VALUE);
        return answer(checked_library(library)->managed(context, name), address, bytes);
    });
}

SIMCUDA_API cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    return call(Entry::cuKernelGetFunction, [&](Context& context) {
        require(function != nullptr, CUDA_ERROR_INVALID_VALUE);
        *function = checked_kernel(kernel)->in(context).handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
    return call(Entry::cuKernelGetLibrary, [&] {
        require(library != nullptr, CUDA_ERROR_INVALID_VALUE);
        *library = checked_kernel(kernel)->library().handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                 CUdevice device) {
    return call(Entry::cuKernelGetAttribute, [&] {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        *value = checked_kernel(kernel)->attribute(checked_device(device), attribute);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                 CUdevice device) {
    return call(Entry::cuKernelSetAttribute, [&] {
        checked_kernel(kernel)->set_attribute(checked_device(device), attribute, value);
        return CUDA_SUCCESS;
    });
}

// A preference, and there are no caches to divide.
SIMCUDA_API cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache, CUdevice device) {
    return call(Entry::cuKernelSetCacheConfig, [&] {
        checked_kernel(kernel);
        checked_device(device);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuKernelGetName(const char** name, CUkernel kernel) {
    return call(Entry::cuKernelGetName, [&] {
        require(name != nullptr, CUDA_ERROR_INVALID_VALUE);
        *name = checked_kernel(kernel)->kernel().name.c_str();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                                 std::size_t* bytes) {
    return call(Entry::cuKernelGetParamInfo, [&] {
        parameter_info(checked_kernel(kernel)->kernel(), index, offset, bytes);
        return CUDA_SUCCESS;
    });
}

// cuModule*: modules of the current context.
#include "tools/simcuda/driver/module.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/jit.h"

using namespace simcuda::driver;

namespace {

CUresult load(Context& context, CUmodule* module, const void* image, unsigned options_count = 0,
              const CUjit_option* options = nullptr, void** values = nullptr) {
    require(module != nullptr, CUDA_ERROR_INVALID_VALUE);
    JitLog log(options_count, options, values);
    *module = load_module(context, translate_image(image, &log))->handle();
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_API cuModuleLoad(CUmodule* module, const char* file) {
    return call(Entry::cuModuleLoad, kUnsafeInCapture,
                [&](Context& context) { return load(context, module, read_image(file).c_str()); });
}

SIMCUDA_API cuModuleLoadData(CUmodule* module, const void* image) {
    return call(Entry::cuModuleLoadData, kUnsafeInCapture,
                [&](Context& context) { return load(context, module, image); });
}

SIMCUDA_API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count, CUjit_option* options,
                               void** values) {
    return call(Entry::cuModuleLoadDataEx, kUnsafeInCapture,
                [&](Context& context) { return load(context, module, image, count, options, values); });
}

SIMCUDA_API cuModuleLoadFatBinary(CUmodule* module, const void* image) {
    return call(Entry::cuModuleLoadFatBinary, kUnsafeInCapture,
                [&](Context& context) { return load(context, module, image); });
}

SIMCUDA_API cuModuleUnload(CUmodule module) {
    return call(Entry::cuModuleUnload, kUnsafeInCapture | kNotAfterFailure, [&] {
        require(!checked_module(module)->of_library(), CUDA_ERROR_NOT_PERMITTED);
        unload_module(module);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    return call(Entry::cuModuleGetLoadingMode, [&] {
        require(mode != nullptr, CUDA_ERROR_INVALID_VALUE);
        *mode = CU_MODULE_LAZY_LOADING;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    return call(Entry::cuModuleGetFunction, [&](Context&) {
        require(function != nullptr && name != nullptr && *name != '\0', CUDA_ERROR_INVALID_VALUE);
        for (const auto& candidate : checked_module(module)->functions()) {
            if (candidate->function().kernel->name == name) {
                *function = candidate->handle();
                return CUDA_SUCCESS;
            }
        }
        return CUDA_ERROR_NOT_FOUND;
    });
}

SIMCUDA_API cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
    return call(Entry::cuModuleGetFunctionCount, [&](Context&) {
        require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
        *count = static_cast<unsigned>(checked_module(module)->functions().size());
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuModuleEnumerateFunctions(CUfunction* functions, unsigned int room, CUmodule module) {
    return call(Entry::cuModuleEnumerateFunctions, [&](Context&) {
        require(functions != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto& all = checked_module(module)->functions();
        for (unsigned i = 0; i < room && i < all.size(); ++i) functions[i] = all[i]->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule module,
                                 const char* name) {
    return call(Entry::cuModuleGetGlobal_v2, [&](Context&) {
        require((address != nullptr || bytes != nullptr) && name != nullptr && *name != '\0',
                CUDA_ERROR_INVALID_VALUE);
        Module::Global global = checked_module(module)->global(name);
        if (address) *address = global.address;
        if (bytes) *bytes = global.bytes;
        return CUDA_SUCCESS;
    });
}

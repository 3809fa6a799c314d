// cuFunc*: functions of the current context. A CUkernel cast to CUfunction is accepted wherever
// cuLaunchKernel would accept it.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/function_attributes.h"
#include "tools/simcuda/driver/library.h"

using namespace simcuda::driver;

namespace {

ModuleFunction& module_function(Context& context, const std::shared_ptr<Launchable>& launchable) {
    if (auto* kernel = dynamic_cast<LibraryKernel*>(launchable.get())) return kernel->in(context);
    return dynamic_cast<ModuleFunction&>(*launchable);
}

}  // namespace

SIMCUDA_API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    return call(Entry::cuFuncGetAttribute, [&](Context& context) {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        const Function& bound = find_launchable(function)->bind(context);
        *value = function_attribute(context.device(), bound, *bound.image->program, attribute);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    return call(Entry::cuFuncSetAttribute, [&](Context& context) {
        set_function_attribute(context.device(), find_launchable(function)->bind(context), attribute, value);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    return call(Entry::cuFuncSetCacheConfig, [&](Context& context) {
        require(is_cache_config(config), CUDA_ERROR_INVALID_VALUE);
        find_launchable(function)->bind(context).cache_config = config;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuFuncGetModule(CUmodule* module, CUfunction function) {
    return call(Entry::cuFuncGetModule, [&](Context& context) {
        require(module != nullptr, CUDA_ERROR_INVALID_VALUE);
        *module = module_function(context, find_launchable(function)).module().handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuFuncGetName(const char** name, CUfunction function) {
    return call(Entry::cuFuncGetName, [&](Context& context) {
        require(name != nullptr, CUDA_ERROR_INVALID_VALUE);
        *name = module_function(context, find_launchable(function)).function().kernel->name.c_str();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                               std::size_t* bytes) {
    return call(Entry::cuFuncGetParamInfo, [&](Context& context) {
        parameter_info(*module_function(context, find_launchable(function)).function().kernel, index, offset,
                       bytes);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
    return call(Entry::cuFuncIsLoaded, [&](Context& context) {
        require(state != nullptr, CUDA_ERROR_INVALID_VALUE);
        bool loaded = module_function(context, find_launchable(function)).module().loaded();
        *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuFuncLoad(CUfunction function) {
    return call(Entry::cuFuncLoad, [&](Context& context) {
        find_launchable(function)->bind(context);
        return CUDA_SUCCESS;
    });
}

#include "shim/access/code_registry.h"

#include <span>
#include <vector>

#include "shim/access/elsewhere.h"
#include "shim/access/layouts.h"
#include "shim/access/pointer_tables.h"
#include "shim/device/driver_table.h"
#include "shim/util/settings.h"

namespace lms::access {

namespace {

using device::driver;

// The compute capability of each GPU of the process (86 is 8.6); none where the driver does not tell them
// all.
std::vector<unsigned> ask_capabilities() {
    int count = 0;
    if (driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return {};
    std::vector<unsigned> gpus;
    for (int device = 0; device < count; ++device) {
        int major = 0;
        int minor = 0;
        if (driver().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
                CUDA_SUCCESS ||
            driver().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
                CUDA_SUCCESS)
            return {};
        gpus.push_back(static_cast<unsigned>(major * 10 + minor));
    }
    return gpus;
}

std::span<const unsigned> capabilities_of_gpus() {
    static const std::vector<unsigned>& capabilities = *new std::vector<unsigned>(ask_capabilities());
    return capabilities;
}

code::CodeImage::Keep wanted() {
    code::CodeImage::Keep keep{settings().safety == Safety::Opaque, !driver_tells_layouts()};
    if (keep.layouts || keep.addresses) keep.gpus = capabilities_of_gpus();
    return keep;
}

CUcontext current_context() {
    CUcontext context = nullptr;
    driver().cuCtxGetCurrent(&context);
    return context;
}

// Which kernels were its the driver no longer tells.
std::vector<KnownRegion> forget(const code::LoadedCode::Gone& gone) {
    forget_layouts();
    elsewhere_freed();
    std::vector<KnownRegion> variables;
    for (const code::LoadedCode::Handle handle : gone.handles()) {
        for (KnownRegion& each : forget_variables(handle)) variables.push_back(std::move(each));
    }
    return variables;
}

}  // namespace

code::LoadedCode& loaded_code() {
    // Never destroyed: other libraries' exit handlers launch kernels and unload modules.
    static code::LoadedCode& instance = *new code::LoadedCode;
    return instance;
}

void code_loaded(CUmodule module, const void* image) {
    loaded_code().loaded(module, code::CodeImage(image, std::nullopt, wanted()), current_context());
}

void code_loaded(CUlibrary library, const void* image) {
    loaded_code().loaded(library, code::CodeImage(image, std::nullopt, wanted()), nullptr);
}

void code_loaded_from(CUmodule module, const char* path) {
    loaded_code().loaded(module, code::CodeImage::of_file(path, wanted()), current_context());
}

void code_loaded_from(CUlibrary library, const char* path) {
    loaded_code().loaded(library, code::CodeImage::of_file(path, wanted()), nullptr);
}

void kernel_given(CUfunction function, CUmodule module, const char* name) {
    if (!driver_tells_layouts()) loaded_code().named(function, {name, module});
}

// A function in a context does not tell of which library it is.
void kernel_given(CUkernel kernel, CUlibrary library, const char* name) {
    loaded_code().named(kernel, {name, library});
}

void kernel_given(CUfunction function, CUkernel kernel) {
    // One that was enumerated has not been asked for by its name.
    if (CUlibrary library = loaded_code().kernel(kernel) ? nullptr : library_of(kernel))
        loaded_code().named(kernel, {name_of(reinterpret_cast<CUfunction>(kernel)), library});
    loaded_code().same(function, kernel, current_context());
}

void module_given(CUmodule module, CUlibrary library) {
    loaded_code().became(module, library, current_context());
}

CodeEnd::CodeEnd(const void* handle) : code_(loaded_code().unloaded(handle)), variables_(forget(code_)) {}

void CodeEnd::refused() {
    loaded_code().stays(std::move(code_));
    for (const KnownRegion& each : variables_) region_stays(each);
}

void context_code_gone(CUcontext context) {
    forget(loaded_code().context_gone(context));
}

CUmodule module_of(CUlibrary library) {
    CUmodule module = nullptr;
    if (driver().cuLibraryGetModule(&module, library) != CUDA_SUCCESS) return nullptr;
    module_given(module, library);
    return module;
}

CUlibrary library_of(CUkernel kernel) {
    CUlibrary library = nullptr;
    const bool told = device::driver_has(device::Entry::cuKernelGetLibrary) &&
                      driver().cuKernelGetLibrary(&library, kernel) == CUDA_SUCCESS;
    return told ? library : nullptr;
}

CUcontext context_of(CUfunction function) {
    CUmodule module = nullptr;
    if (driver().cuFuncGetModule(&module, function) != CUDA_SUCCESS) return nullptr;
    return static_cast<CUcontext>(const_cast<void*>(loaded_code().context_of(module)));
}

bool driver_tells_layouts() {
    return device::driver_has(device::Entry::cuFuncGetParamInfo) &&
           device::driver_has(device::Entry::cuKernelGetParamInfo);
}

std::string name_of(CUfunction function) {
    if (!device::driver_has(device::Entry::cuFuncGetName) ||
        !device::driver_has(device::Entry::cuKernelGetName)) {
        const auto known = loaded_code().kernel(function);
        return known ? known->name : "";
    }
    const char* name = nullptr;
    if (driver().cuFuncGetName(&name, function) == CUDA_SUCCESS && name) return name;
    const CUresult status = driver().cuKernelGetName(&name, reinterpret_cast<CUkernel>(function));
    return status == CUDA_SUCCESS && name ? name : "";
}

}  // namespace lms::access

// Code loaded and unloaded, and its variables.
#include <array>

#include "shim/code/code_layouts.h"
#include "shim/code/kernel_access.h"
#include "shim/device/driver_table.h"
#include "shim/entry/guard.h"
#include "shim/reach/layouts.h"
#include "shim/reach/pointer_tables.h"
#include "shim/session/submit.h"
#include "shim/util/settings.h"

namespace lms::entry {
namespace {

using device::driver;

// What the driver has done stands, whether there is memory for the note or not.
template <typename Note>
void noted(Note&& note) {
    guarded([&] {
        note();
        return CUDA_SUCCESS;
    });
}

// Loads code by `call`; `note(handle)` keeps of it what the engine will ask for.
template <typename Handle, typename Call, typename Note>
CUresult load(Handle* handle, Call&& call, Note&& note) {
    return guarded([&] {
        const CUresult status = engine::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS && handle) noted([&] { note(*handle); });
        return status;
    });
}

void note_image(const void* handle, const void* image) {
    if (settings().safety == Safety::Opaque) engine::code_loaded(handle, image);
    if (!engine::driver_tells_layouts()) engine::keep_code(handle, image, engine::capabilities_of_gpus());
}

void note_file(const void* handle, const char* path) {
    if (settings().safety == Safety::Opaque) engine::code_loaded_from(handle, path);
    if (!engine::driver_tells_layouts()) engine::keep_code_from(handle, path, engine::capabilities_of_gpus());
}

// A kernel by `call`, of whose name older drivers keep nothing.
template <typename Function, typename Call, typename Note>
CUresult get_function(Function* function, Call&& call, Note&& note) {
    return guarded([&] {
        const CUresult status = engine::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS && function && !engine::driver_tells_layouts())
            noted([&] { note(*function); });
        return status;
    });
}

// What stands behind the handle goes; other code will be given it.
template <typename Unload>
CUresult unload(const void* handle, Unload&& call) {
    return guarded([&] {
        engine::forget_layouts();
        engine::forget_variables(handle);
        engine::code_unloaded(handle);
        engine::drop_code(handle);
        return call();
    });
}

// The library's variables in the current context are those of its module there.
template <typename Get>
CUresult library_variable(CUdeviceptr* address, std::size_t* bytes, CUlibrary library, Get&& get) {
    return guarded([&]() -> CUresult {
        CUdeviceptr where = 0;
        std::size_t size = 0;
        const CUresult status = get(&where, &size);
        if (status != CUDA_SUCCESS) return status;
        if (address) *address = where;
        if (bytes) *bytes = size;
        CUmodule module = nullptr;
        std::array<const void*, 2> owners{library, nullptr};
        const bool loaded = driver().cuLibraryGetModule(&module, library) == CUDA_SUCCESS;
        owners[1] = module;
        engine::note_variable(where, size, std::span(owners).first(loaded ? 2 : 1));
        return status;
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using device::driver;

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
    return entry::load(
        module, [&] { return driver().cuModuleLoad(module, fname); },
        [&](CUmodule loaded) { entry::note_file(loaded, fname); });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    return entry::load(
        module, [&] { return driver().cuModuleLoadData(module, image); },
        [&](CUmodule loaded) { entry::note_image(loaded, image); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
    return entry::load(
        module, [&] { return driver().cuModuleLoadDataEx(module, image, numOptions, options, optionValues); },
        [&](CUmodule loaded) { entry::note_image(loaded, image); });
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
    return entry::load(
        module, [&] { return driver().cuModuleLoadFatBinary(module, fatCubin); },
        [&](CUmodule loaded) { entry::note_image(loaded, fatCubin); });
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
    return entry::load(
        library,
        [&] {
            return driver().cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions,
                                              libraryOptions, libraryOptionValues, numLibraryOptions);
        },
        [&](CUlibrary loaded) { entry::note_image(loaded, code); });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
    return entry::load(
        library,
        [&] {
            return driver().cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues,
                                                  numJitOptions, libraryOptions, libraryOptionValues,
                                                  numLibraryOptions);
        },
        [&](CUlibrary loaded) { entry::note_file(loaded, fileName); });
}

CUresult cuModuleUnload(CUmodule hmod) {
    return entry::unload(hmod, [&] { return driver().cuModuleUnload(hmod); });
}

CUresult cuLibraryUnload(CUlibrary library) {
    return entry::unload(library, [&] { return driver().cuLibraryUnload(library); });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
    return entry::get_function(
        hfunc, [&] { return driver().cuModuleGetFunction(hfunc, hmod, name); },
        [&](CUfunction found) {
            engine::note_name(found, {name, hmod});
        });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
    return entry::get_function(
        pKernel, [&] { return driver().cuLibraryGetKernel(pKernel, library, name); },
        [&](CUkernel found) {
            engine::note_name(found, {name, library});
        });
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
    return entry::get_function(
        pFunc, [&] { return driver().cuKernelGetFunction(pFunc, kernel); },
        [&](CUfunction found) { engine::note_same(found, kernel); });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
    return entry::guarded([&]() -> CUresult {
        CUdeviceptr where = 0;
        std::size_t size = 0;
        // The driver refuses a question for nothing.
        if (!dptr && !bytes) return driver().cuModuleGetGlobal_v2(dptr, bytes, hmod, name);
        const CUresult status = driver().cuModuleGetGlobal_v2(&where, &size, hmod, name);
        if (status != CUDA_SUCCESS) return status;
        if (dptr) *dptr = where;
        if (bytes) *bytes = size;
        const void* owner = hmod;
        engine::note_variable(where, size, {&owner, 1});
        return status;
    });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
    if (!dptr && !bytes) return driver().cuLibraryGetGlobal(dptr, bytes, library, name);
    return entry::library_variable(dptr, bytes, library, [&](CUdeviceptr* where, std::size_t* size) {
        return driver().cuLibraryGetGlobal(where, size, library, name);
    });
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
    if (!dptr && !bytes) return driver().cuLibraryGetManaged(dptr, bytes, library, name);
    return entry::library_variable(dptr, bytes, library, [&](CUdeviceptr* where, std::size_t* size) {
        return driver().cuLibraryGetManaged(where, size, library, name);
    });
}

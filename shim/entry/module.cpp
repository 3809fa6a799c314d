// Code loaded and unloaded, and its variables.
#include <array>

#include "shim/access/code_registry.h"
#include "shim/access/pointer_tables.h"
#include "shim/device/driver_table.h"
#include "shim/entry/guard.h"
#include "shim/session/submit.h"

namespace lms::entry {
namespace {

using device::driver;

// What the driver has done stands, whether there is memory for the note or not.
template <typename Note>
void note_if_known(Note&& note) {
    guarded([&] {
        note();
        return CUDA_SUCCESS;
    });
}

// Gets the handle of code or of a kernel by `call`; `note(handle)` keeps of it what the engine will ask for.
template <typename Handle, typename Call, typename Note>
CUresult get(Handle* handle, Call&& call, Note&& note) {
    return guarded_taking([&] {
        const CUresult status = session::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS && handle) note_if_known([&] { note(*handle); });
        return status;
    });
}

// Where a variable is, by `call(address, bytes)`; `note(address, bytes)` keeps that. Its module may be loaded
// for it.
template <typename Call, typename Note>
CUresult get_variable(CUdeviceptr* address, std::size_t* bytes, Call&& call, Note&& note) {
    // The driver refuses a question for nothing.
    if (!address && !bytes) return call(address, bytes);
    return guarded([&]() -> CUresult {
        CUdeviceptr where = 0;
        std::size_t size = 0;
        const CUresult status = session::call_with_oom_retry([&] { return call(&where, &size); });
        if (status != CUDA_SUCCESS) return status;
        if (address) *address = where;
        if (bytes) *bytes = size;
        note_if_known([&] { note(where, size); });
        return status;
    });
}

// The library's variables in the current context are those of its module there.
template <typename Call>
CUresult get_variable_of(CUlibrary library, CUdeviceptr* address, std::size_t* bytes, Call&& call) {
    return get_variable(address, bytes, call, [&](CUdeviceptr where, std::size_t size) {
        const CUmodule module = access::module_of(library);
        const std::array<const void*, 2> owners{library, module};
        access::note_variable(where, size, std::span(owners).first(module ? 2 : 1));
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using device::driver;

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
    return entry::get(
        module, [&] { return driver().cuModuleLoad(module, fname); },
        [&](CUmodule loaded) { access::code_loaded_from(loaded, fname); });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    return entry::get(
        module, [&] { return driver().cuModuleLoadData(module, image); },
        [&](CUmodule loaded) { access::code_loaded(loaded, image); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
    return entry::get(
        module, [&] { return driver().cuModuleLoadDataEx(module, image, numOptions, options, optionValues); },
        [&](CUmodule loaded) { access::code_loaded(loaded, image); });
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
    return entry::get(
        module, [&] { return driver().cuModuleLoadFatBinary(module, fatCubin); },
        [&](CUmodule loaded) { access::code_loaded(loaded, fatCubin); });
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
    return entry::get(
        library,
        [&] {
            return driver().cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions,
                                              libraryOptions, libraryOptionValues, numLibraryOptions);
        },
        [&](CUlibrary loaded) { access::code_loaded(loaded, code); });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
    return entry::get(
        library,
        [&] {
            return driver().cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues,
                                                  numJitOptions, libraryOptions, libraryOptionValues,
                                                  numLibraryOptions);
        },
        [&](CUlibrary loaded) { access::code_loaded_from(loaded, fileName); });
}

CUresult cuModuleUnload(CUmodule hmod) {
    return entry::guarded_end<lms::access::CodeEnd>(hmod, [&] { return driver().cuModuleUnload(hmod); });
}

CUresult cuLibraryUnload(CUlibrary library) {
    return entry::guarded_end<lms::access::CodeEnd>(library,
                                                    [&] { return driver().cuLibraryUnload(library); });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
    return entry::get(
        hfunc, [&] { return driver().cuModuleGetFunction(hfunc, hmod, name); },
        [&](CUfunction found) { access::kernel_given(found, hmod, name); });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
    return entry::get(
        pKernel, [&] { return driver().cuLibraryGetKernel(pKernel, library, name); },
        [&](CUkernel found) { access::kernel_given(found, library, name); });
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
    return entry::get(
        pFunc, [&] { return driver().cuKernelGetFunction(pFunc, kernel); },
        [&](CUfunction found) { access::kernel_given(found, kernel); });
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
    return entry::get(
        pMod, [&] { return driver().cuLibraryGetModule(pMod, library); },
        [&](CUmodule became) { access::module_given(became, library); });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
    return entry::get_variable(
        dptr, bytes,
        [&](CUdeviceptr* where, std::size_t* size) {
            return driver().cuModuleGetGlobal_v2(where, size, hmod, name);
        },
        [&](CUdeviceptr where, std::size_t size) {
            const void* owner = hmod;
            access::note_variable(where, size, {&owner, 1});
        });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
    return entry::get_variable_of(library, dptr, bytes, [&](CUdeviceptr* where, std::size_t* size) {
        return driver().cuLibraryGetGlobal(where, size, library, name);
    });
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
    return entry::get_variable_of(library, dptr, bytes, [&](CUdeviceptr* where, std::size_t* size) {
        return driver().cuLibraryGetManaged(where, size, library, name);
    });
}

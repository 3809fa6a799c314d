// The code that the program has loaded, kept as far as launches will ask: what their parameters are where the
// driver does not tell (before CUDA 12.4), and in LMS_SAFETY=opaque whether those tell all that they reach.
#pragma once

#include <string>
#include <vector>

#include "shim/access/pointer_tables.h"
#include "shim/code/loaded_code.h"
#include "shim/device/cuda_api.h"

namespace lms::access {

// Thread-safe, for the process.

code::LoadedCode& loaded_code();

// The driver has loaded this as a module of the current context, or as a library. The image may be gone after
// the call.
void code_loaded(CUmodule module, const void* image);
void code_loaded(CUlibrary library, const void* image);
void code_loaded_from(CUmodule module, const char* path);
void code_loaded_from(CUlibrary library, const char* path);
// The driver has given this kernel, or its function in the current context, or the module that a library is
// there.
void kernel_given(CUfunction function, CUmodule module, const char* name);
void kernel_given(CUkernel kernel, CUlibrary library, const char* name);
void kernel_given(CUfunction function, CUkernel kernel);
void module_given(CUmodule module, CUlibrary library);

// Forgets all that is known of a module or library, around the call that unloads it (afterwards others may
// have its handle), or of those of a context that is gone: layouts and variables too.
class CodeEnd {
  public:
    explicit CodeEnd(const void* handle);
    // The driver has not unloaded it: all is known again.
    void refused();

  private:
    code::LoadedCode::Gone code_;
    std::vector<KnownRegion> variables_;
};
void context_code_gone(CUcontext context);

// The module that `library` is in the current context; null if the driver does not tell.
CUmodule module_of(CUlibrary library);

// The context that a function's module was loaded into; null: that is not known.
CUcontext context_of(CUfunction function);

// The library of a CUkernel, which `kernel` may be; null: the driver does not tell.
CUlibrary library_of(CUkernel kernel);

// Whether the driver tells layouts itself.
bool driver_tells_layouts();

// The kernel's name as in its code; empty where nobody tells.
std::string name_of(CUfunction function);

}  // namespace lms::access

// The dynamic loader, as seen from behind the shim's own dlsym.
#pragma once

namespace lms::device {

using DlsymFunction = void* (*)(void* handle, const char* name);

// The dlsym that the process would use without the shim: glibc's, or that of an interposer preloaded after
// it. Any thread, also before constructors have run. Leaves no error for dlerror behind.
DlsymFunction real_dlsym();

// The loaded library that holds an address, as the handle dlopen would give for it; nullptr if none does.
void* library_of(const void* address);

// The shim's own library.
void* own_library();

}  // namespace lms::device

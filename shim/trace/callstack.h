// The program's call stack at an allocation.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lms::trace {

// The calling thread's frames, innermost first, at most 16: "symbol+0x1f (module+0x2c40)", or without the
// symbol where the module exports none; offsets as addr2line takes them. Leading frames of the shim itself
// and of the CUDA runtime are left out. Where Python called, its frames (python_frames.h), at most 16 too,
// are in place of the interpreter's. Call it with no lock held: it takes the dynamic loader's. Never throws;
// empty if memory is short.
std::vector<std::string> call_site() noexcept;

// As above; leaves out the leading frames for which `skip` is true of the module they are in.
std::vector<std::string> call_site(bool (*skip)(const Dl_info& module)) noexcept;

// Whether one of the thread's innermost 64 frames is in code that `matches`. Takes the loader's lock too.
bool called_from(bool (*matches)(std::uintptr_t address)) noexcept;

}  // namespace lms::trace

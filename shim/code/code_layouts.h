// Parameter layouts read from the code that the program has loaded, for drivers that do not tell them (before
// CUDA 12.4), nor the names of kernels (before 12.3). The callers see to it that with others nothing is kept
// here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/code/nv_info.h"
#include "shim/code/parameter.h"

namespace lms::engine {

// Of the kernels of PTX `text`, those whose parameters all are of known sizes.
CodeLayouts layouts_in_ptx(std::string_view text);

// Thread-safe, for the process.

// The driver has loaded `image`, which may be gone after this call, as the module or library `handle`. Copies
// its native code (what `gpus` can run of it, see find_cubins) or else its PTX; no look is taken before a
// kernel of it is asked about.
void keep_code(const void* handle, const void* image, std::span<const unsigned> gpus = {});
// The same from a file.
void keep_code_from(const void* handle, const char* path, std::span<const unsigned> gpus = {});
// It is about to be unloaded.
void drop_code(const void* handle);

// The layout of the kernel `name` of a module or library (`owners`, as far as they are known; else of all
// that are loaded). Nothing where no code tells, or two differ.
std::optional<std::vector<Parameter>> layout_in_code(std::span<const void* const> owners,
                                                     std::string_view name);

struct KernelName {
    std::string name;
    const void* owner = nullptr;  // the module or library that was asked for it
};
// The driver has given `function` (a CUfunction or CUkernel) for it.
void note_name(const void* function, KernelName name);
// The driver has given `function` as the one of `kernel`.
void note_same(const void* function, const void* kernel);
std::optional<KernelName> noted_name(const void* function);

}  // namespace lms::engine

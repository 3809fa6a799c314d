// The code that the program has loaded: an entry for each module and library, and a name for each kernel of
// drivers that keep none. What goes away takes its entries along, for its handles are given out again. Pure:
// handles are but keys here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim/code/code_image.h"
#include "shim/util/mutex.h"

namespace lms::code {

// Thread-safe.
class LoadedCode {
  public:
    using Handle = const void*;

    // `handle` stands for this code, whatever it stood for before: as a module of `context`, or as a library,
    // which is in none.
    void loaded(Handle handle, CodeImage image, Handle context);
    // The library became this module in `context`.
    void became(Handle module, Handle library, Handle context);

    struct Kernel {
        std::string name;
        Handle owner = nullptr;  // the module or library that was asked for it
    };
    // The driver has given `function` (a CUfunction or CUkernel) for it.
    void named(Handle function, Kernel kernel);
    // It has given `function` as the one of `kernel` in `context`.
    void same(Handle function, Handle kernel, Handle context);

    // All that is known of some modules and libraries.
    class Gone;
    // The module or library goes, or `context` with all that is in it.
    Gone unloaded(Handle handle);
    Gone context_gone(Handle context);
    // It has stayed.
    void stays(Gone gone);

    // Null of a library, and of what is not known.
    Handle context_of(Handle module) const;
    std::optional<Kernel> kernel(Handle function) const;
    // Of the kernel `name` of a module or library (`owners`, as far as they are known; else of all that are
    // loaded). No layout where no code tells, or two differ.
    std::optional<std::vector<Parameter>> layout_of(std::span<const Handle> owners, const std::string& name);
    // Where the owners are not known it may be any of that name: no bounds, and all may be written.
    KernelCode code_of(std::span<const Handle> owners, const std::string& name);

  private:
    struct Code {
        CodeImage image;
        Handle context = nullptr;
        Handle library = nullptr;  // whose image it is, of a module that one became
    };
    struct NamedKernel : Kernel {
        Handle context = nullptr;  // of a function of a library's kernel
    };

    CodeImage* image_of(std::span<const Handle> owners) LMS_REQUIRES(mutex_);
    template <typename IsGone>
    Gone drop(IsGone&& is_gone) LMS_REQUIRES(mutex_);

    mutable util::Mutex mutex_{util::LockOrder::Table};
    std::unordered_map<Handle, Code> code_ LMS_GUARDED_BY(mutex_);
    std::unordered_map<Handle, NamedKernel> kernels_ LMS_GUARDED_BY(mutex_);
};

class LoadedCode::Gone {
  public:
    std::vector<Handle> handles() const {
        std::vector<Handle> all;
        for (const auto& [handle, code] : code_) all.push_back(handle);
        return all;
    }

  private:
    friend class LoadedCode;
    std::unordered_map<Handle, Code> code_;
    std::unordered_map<Handle, NamedKernel> kernels_;
};

}  // namespace lms::code

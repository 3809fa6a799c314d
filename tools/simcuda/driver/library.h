// Libraries: programs that load themselves into each context they are used in. What a CUlibrary points to.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "tools/simcuda/driver/module.h"

namespace simcuda::driver {

class Library;

// A kernel of a library, for all contexts: what a CUkernel points to. cuLaunchKernel accepts it too.
class LibraryKernel final : public Launchable {
  public:
    LibraryKernel(Library& library, std::size_t index) : library_(library), index_(index) {}
    Function& bind(Context& context) override;

    CUkernel kernel_handle() { return reinterpret_cast<CUkernel>(handle()); }
    Library& library() const { return library_; }
    const ptx::Kernel& kernel() const;
    ModuleFunction& in(Context& context) const;

    // cuKernelGetAttribute and cuKernelSetAttribute: for the kernel in all contexts of the device. Throw
    // Failure.
    int attribute(const Device& device, CUfunction_attribute attribute) const;
    void set_attribute(Device& device, CUfunction_attribute attribute, int value);
    void apply_settings(const Device& device, Function& function) const;  // for a module that was just made

  private:
    struct Setting {
        const Device* device;
        CUfunction_attribute attribute;
        int value;
    };

    Library& library_;
    const std::size_t index_;  // in Program::kernels()

    mutable std::mutex mutex_;  // guards what follows
    std::vector<Setting> settings_;
};

// Thread-safe.
class Library {
  public:
    explicit Library(std::shared_ptr<const ptx::Program> program);
    ~Library();
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    CUlibrary handle() { return reinterpret_cast<CUlibrary>(this); }
    const ptx::Program& program() const { return *program_; }

    // In the order of Program::kernels().
    const std::vector<std::shared_ptr<LibraryKernel>>& kernels() const { return kernels_; }

    // Its module in the context; made at the first call, loaded when used.
    std::shared_ptr<Module> in(Context& context);

    // The modules there are in contexts of the device.
    std::vector<std::shared_ptr<Module>> on(const Device& device);

    // Throws Failure with CUDA_ERROR_NOT_FOUND.
    Module::Global managed(Context& context, std::string_view name);

    void unload();
    // The context goes, and its modules with it.
    void forget(const Context& context);

  private:
    const std::shared_ptr<const ptx::Program> program_;
    const std::shared_ptr<ManagedVariables> managed_;
    std::vector<std::shared_ptr<LibraryKernel>> kernels_;

    std::mutex mutex_;  // guards what follows
    std::map<const Context*, std::shared_ptr<Module>> modules_;
};

std::shared_ptr<Library> load_library(std::shared_ptr<const ptx::Program> program);

// Throw Failure with CUDA_ERROR_INVALID_HANDLE for anything that is not live.
std::shared_ptr<Library> checked_library(CUlibrary handle);
std::shared_ptr<LibraryKernel> checked_kernel(CUkernel handle);
void unload_library(CUlibrary handle);
// By all of them.
void forget_libraries(const Context& context);

}  // namespace simcuda::driver

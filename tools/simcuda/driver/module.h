// Modules: programs loaded into a context. What a CUmodule points to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/function.h"
#include "tools/simcuda/driver/jit.h"
#include "tools/simcuda/driver/memory.h"

namespace simcuda::driver {

class Context;
class Module;

// A kernel of a module, by which it is launched: what a CUfunction points to.
class ModuleFunction final : public Launchable {
  public:
    ModuleFunction(Module& module, Context& context, const ptx::Kernel& kernel);
    Function& bind(Context& context) override;

    Module& module() const { return module_; }

    // As it is, loaded or not.
    Function& function() { return function_; }

  private:
    Module& module_;
    Function function_;
    std::once_flag loaded_;
};

// The managed variables of a program: one copy for all contexts, which the host reaches too.
class ManagedVariables {
  public:
    explicit ManagedVariables(const ptx::Program& program) : program_(program) {}

    // Where the variable with this index in Program::variables() is. The first call makes them all, in
    // `context`. Throws Failure with CUDA_ERROR_OUT_OF_MEMORY.
    DeviceAddress address(Context& context, std::size_t index);

    // They went with the context if they were made in it.
    void forget(const Context& context);
    void release();

  private:
    const ptx::Program& program_;
    std::mutex mutex_;  // guards what follows
    const Context* home_ = nullptr;
    std::map<std::size_t, RegionPtr> regions_;
};

// Thread-safe. Loading is lazy, as in CUDA: until something in it is used, a module holds no device memory.
class Module : public std::enable_shared_from_this<Module> {
  public:
    // `managed` is the library's, or null for a module of its own.
    Module(Context& context, std::shared_ptr<const ptx::Program> program,
           std::shared_ptr<ManagedVariables> managed = nullptr);
    ~Module();
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    CUmodule handle() { return reinterpret_cast<CUmodule>(this); }
    Context& context() const { return context_; }
    const ptx::Program& program() const { return *program_; }
    bool of_library() const { return !owns_managed_; }

    // Gives the variables their device memory and initial values. Throws Failure: CUDA_ERROR_OUT_OF_MEMORY.
    std::shared_ptr<const exec::Image> load();
    bool loaded() const;

    // In the order of Program::kernels().
    const std::vector<std::shared_ptr<ModuleFunction>>& functions() const { return functions_; }

    // Loads the module. Throws Failure with CUDA_ERROR_NOT_FOUND.
    struct Global {
        DeviceAddress address;
        std::uint64_t bytes;
    };
    Global global(std::string_view name);

    // Waits for the context's work and gives back the memory; the handles of its functions end.
    void unload();

    // The context is gone and its memory with it.
    void forget();

  private:
    RegionPtr place_variables(exec::Image& image);
    void initialise_variables(const exec::Image& image);
    DeviceAddress symbol_address(const exec::Image& image, const std::string& name) const;

    Context& context_;
    const std::shared_ptr<const ptx::Program> program_;
    const std::shared_ptr<ManagedVariables> managed_;
    const bool owns_managed_;
    std::vector<std::shared_ptr<ModuleFunction>> functions_;

    mutable std::mutex mutex_;  // guards what follows
    std::shared_ptr<const exec::Image> image_;
    RegionPtr variables_;
};

// Finds the PTX in an image (fatbin.h), translates it for the context's device, and loads it. `log` is given
// what is wrong with the PTX. Throws Failure: what find_ptx answers, or CUDA_ERROR_INVALID_PTX.
std::shared_ptr<const ptx::Program> translate_image(const void* image, JitLog* log);
std::shared_ptr<Module> load_module(Context& context, std::shared_ptr<const ptx::Program> program);

// Makes its handle valid, until it is unloaded or its context ends.
void register_module(std::shared_ptr<Module> module);

// Throw Failure with CUDA_ERROR_INVALID_HANDLE for anything that is not live.
std::shared_ptr<Module> checked_module(CUmodule handle);
void unload_module(CUmodule handle);

// The whole file, with a NUL behind it so that it may be PTX text. Throws Failure with
// CUDA_ERROR_FILE_NOT_FOUND.
std::string read_image(const char* path);

}  // namespace simcuda::driver

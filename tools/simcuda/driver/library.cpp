#include "tools/simcuda/driver/library.h"

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/function_attributes.h"
#include "tools/simcuda/driver/handles.h"

namespace simcuda::driver {
namespace {

Handles<Library>& libraries() {
    static auto* table = new Handles<Library>;  // never freed: programs call CUDA from exit handlers
    return *table;
}

}  // namespace

const ptx::Kernel& LibraryKernel::kernel() const {
    return library_.program().kernels()[index_];
}

ModuleFunction& LibraryKernel::in(Context& context) const {
    return *library_.in(context)->functions()[index_];
}

Function& LibraryKernel::bind(Context& context) {
    return in(context).bind(context);
}

int LibraryKernel::attribute(const Device& device, CUfunction_attribute attribute) const {
    Function function;
    function.kernel = &kernel();
    apply_settings(device, function);
    return function_attribute(device, function, library_.program(), attribute);
}

void LibraryKernel::set_attribute(Device& device, CUfunction_attribute attribute, int value) {
    Function checked;
    checked.kernel = &kernel();
    set_function_attribute(device, checked, attribute, value);
    {
        std::lock_guard lock(mutex_);
        settings_.push_back({&device, attribute, value});
    }
    for (const auto& module : library_.on(device)) {
        set_function_attribute(device, module->functions()[index_]->function(), attribute, value);
    }
}

void LibraryKernel::apply_settings(const Device& device, Function& function) const {
    std::lock_guard lock(mutex_);
    for (const Setting& setting : settings_) {
        if (setting.device == &device) {
            set_function_attribute(device, function, setting.attribute, setting.value);
        }
    }
}

Library::Library(std::shared_ptr<const ptx::Program> program)
    : program_(std::move(program)), managed_(std::make_shared<ManagedVariables>(*program_)) {
    for (std::size_t i = 0; i < program_->kernels().size(); ++i) {
        kernels_.push_back(std::make_shared<LibraryKernel>(*this, i));
        register_launchable(kernels_.back());
    }
}

Library::~Library() {
    for (const auto& kernel : kernels_) forget_launchable(kernel.get());
}

std::shared_ptr<Module> Library::in(Context& context) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Module>& module = modules_[&context];
    if (!module) {
        module = std::make_shared<Module>(context, program_, managed_);
        for (std::size_t i = 0; i < kernels_.size(); ++i) {
            kernels_[i]->apply_settings(context.device(), module->functions()[i]->function());
        }
        register_module(module);
    }
    return module;
}

std::vector<std::shared_ptr<Module>> Library::on(const Device& device) {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Module>> found;
    for (const auto& [context, module] : modules_) {
        if (&context->device() == &device) found.push_back(module);
    }
    return found;
}

Module::Global Library::managed(Context& context, std::string_view name) {
    const auto& variables = program_->variables();
    for (std::size_t i = 0; i < variables.size(); ++i) {
        if (variables[i].managed && variables[i].name == name) {
            return {managed_->address(context, i), variables[i].bytes};
        }
    }
    throw Failure{CUDA_ERROR_NOT_FOUND};
}

void Library::unload() {
    std::map<const Context*, std::shared_ptr<Module>> modules;
    {
        std::lock_guard lock(mutex_);
        modules.swap(modules_);
    }
    for (const auto& [context, module] : modules) unload_module(module->handle());
    managed_->release();
}

void Library::forget(const Context& context) {
    std::lock_guard lock(mutex_);
    managed_->forget(context);
    modules_.erase(&context);
}

std::shared_ptr<Library> load_library(std::shared_ptr<const ptx::Program> program) {
    auto library = std::make_shared<Library>(std::move(program));
    libraries().add(library);
    return library;
}

std::shared_ptr<Library> checked_library(CUlibrary handle) {
    std::shared_ptr<Library> library = libraries().find(handle);
    require(library != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return library;
}

std::shared_ptr<LibraryKernel> checked_kernel(CUkernel handle) {
    auto kernel =
        std::dynamic_pointer_cast<LibraryKernel>(find_launchable(reinterpret_cast<CUfunction>(handle)));
    require(kernel != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return kernel;
}

void forget_libraries(const Context& context) {
    for (const auto& library : libraries().select([](const Library&) { return true; }))
        library->forget(context);
}

void unload_library(CUlibrary handle) {
    std::shared_ptr<Library> library = libraries().remove(handle);
    require(library != nullptr, CUDA_ERROR_INVALID_HANDLE);
    library->unload();
}

}  // namespace simcuda::driver

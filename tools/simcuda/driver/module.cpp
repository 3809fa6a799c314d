#include "tools/simcuda/driver/module.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/fatbin.h"
#include "tools/simcuda/driver/function_attributes.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/ptx_link.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

constexpr std::uint64_t kVariableAlignment = 256;  // bytes; what cuMemAlloc guarantees

Handles<Module>& modules() {
    static auto* table = new Handles<Module>;  // never freed: programs call CUDA from exit handlers
    return *table;
}

// Once for each context, at its first module.
void forget_modules_at_destroy(Context& context) {
    static std::mutex mutex;
    static auto* watched = new std::set<const Context*>;
    std::lock_guard lock(mutex);
    if (!watched->insert(&context).second) return;
    context.at_destroy([&context] {
        modules().remove_if([&](Module& module) {
            if (&module.context() != &context) return false;
            module.forget();
            return true;
        });
        std::lock_guard watched_lock(mutex);
        watched->erase(&context);
    });
}

void free_region(const RegionPtr& region) {
    // The context may have taken it along.
    if (region && memory_map().remove(region->address)) dispose(*region);
}

}  // namespace

ModuleFunction::ModuleFunction(Module& module, Context& context, const ptx::Kernel& kernel)
    : module_(module) {
    function_.context = &context;
    function_.kernel = &kernel;
}

Function& ModuleFunction::bind(Context& context) {
    require(&context == function_.context, CUDA_ERROR_INVALID_HANDLE);
    std::call_once(loaded_, [&] { function_.image = module_.load(); });  // again after a failure
    return function_;
}

DeviceAddress ManagedVariables::address(Context& context, std::size_t index) {
    std::lock_guard lock(mutex_);
    if (!home_) {
        const auto& variables = program_.variables();
        for (std::size_t i = 0; i < variables.size(); ++i) {
            if (!variables[i].managed) continue;
            RegionPtr region =
                allocate_host(context, variables[i].bytes, CU_MEM_ATTACH_GLOBAL, Region::Kind::Managed);
            auto* bytes = reinterpret_cast<std::byte*>(region->address);
            std::memset(bytes, 0, variables[i].bytes);
            std::memcpy(bytes, variables[i].initial.data(), variables[i].initial.size());
            regions_[i] = std::move(region);
        }
        home_ = &context;
    }
    return regions_.at(index)->address;
}

void ManagedVariables::forget(const Context& context) {
    std::lock_guard lock(mutex_);
    if (home_ != &context) return;
    home_ = nullptr;
    regions_.clear();
}

void ManagedVariables::release() {
    std::lock_guard lock(mutex_);
    for (const auto& [index, region] : regions_) free_region(region);
    home_ = nullptr;
    regions_.clear();
}

Module::Module(Context& context, std::shared_ptr<const ptx::Program> program,
               std::shared_ptr<ManagedVariables> managed)
    : context_(context),
      program_(std::move(program)),
      managed_(managed ? managed : std::make_shared<ManagedVariables>(*program_)),
      owns_managed_(!managed) {
    for (const ptx::Kernel& kernel : program_->kernels()) {
        functions_.push_back(std::make_shared<ModuleFunction>(*this, context, kernel));
        register_launchable(functions_.back());
    }
}

Module::~Module() {
    for (const auto& function : functions_) forget_launchable(function.get());
}

bool Module::loaded() const {
    std::lock_guard lock(mutex_);
    return image_ != nullptr;
}

std::shared_ptr<const exec::Image> Module::load() {
    std::lock_guard lock(mutex_);
    if (image_) return image_;
    auto image = std::make_shared<exec::Image>();
    image->program = program_;
    context_.charge(knobs().module_bytes);
    try {
        variables_ = place_variables(*image);
        initialise_variables(*image);
    } catch (...) {
        context_.refund(knobs().module_bytes);
        throw;
    }
    return image_ = std::move(image);
}

RegionPtr Module::place_variables(exec::Image& image) {
    const auto& variables = program_->variables();
    std::vector<std::uint64_t> offsets;
    std::uint64_t bytes = 0;
    for (const ptx::Variable& variable : variables) {
        bytes = round_up(bytes, std::max(variable.alignment, kVariableAlignment));
        offsets.push_back(bytes);
        if (!variable.managed) bytes += variable.bytes;
    }
    RegionPtr region = bytes ? allocate_device(context_, bytes) : nullptr;
    for (std::size_t i = 0; i < variables.size(); ++i) {
        image.variable_addresses.push_back(variables[i].managed ? managed_->address(context_, i)
                                                                : region->address + offsets[i]);
    }
    return region;
}

void Module::initialise_variables(const exec::Image& image) {
    const auto& variables = program_->variables();
    for (std::size_t i = 0; i < variables.size(); ++i) {
        if (variables[i].managed) continue;
        auto* bytes = static_cast<std::byte*>(to_host(image.variable_addresses[i]));
        std::memset(bytes, 0, variables[i].bytes);
        std::memcpy(bytes, variables[i].initial.data(), variables[i].initial.size());
        for (const ptx::Relocation& relocation : variables[i].relocations) {
            DeviceAddress value = symbol_address(image, relocation.symbol) + relocation.addend;
            std::memcpy(bytes + relocation.offset, &value, sizeof(value));
        }
    }
}

DeviceAddress Module::symbol_address(const exec::Image& image, const std::string& name) const {
    const auto& variables = program_->variables();
    for (std::size_t i = 0; i < variables.size(); ++i) {
        if (variables[i].name == name) return image.variable_addresses[i];
    }
    message("the address of %s, in the initial value of a variable, is not that of a variable", name.c_str());
    throw Failure{CUDA_ERROR_NOT_SUPPORTED};
}

Module::Global Module::global(std::string_view name) {
    const auto& variables = program_->variables();
    for (std::size_t i = 0; i < variables.size(); ++i) {
        if (variables[i].name == name) return {load()->variable_addresses[i], variables[i].bytes};
    }
    throw Failure{CUDA_ERROR_NOT_FOUND};
}

void Module::unload() {
    for (const auto& function : functions_) forget_launchable(function.get());
    if (!loaded()) return;
    synchronize(context_);
    std::lock_guard lock(mutex_);
    free_region(variables_);
    if (owns_managed_) managed_->release();
    context_.refund(knobs().module_bytes);
    variables_ = nullptr;
    image_ = nullptr;
}

void Module::forget() {
    managed_->forget(context_);
}

std::shared_ptr<const ptx::Program> translate_image(const void* image, JitLog* log) {
    require(image != nullptr, CUDA_ERROR_INVALID_VALUE);
    std::vector<std::string> texts;
    const unsigned arch = architecture(checked_device(0));  // all devices are alike
    const CUresult result = find_ptx(image, arch, texts);
    static std::atomic<bool> said;
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && !said.exchange(true))
        message(
            "code without PTX for compute capability %u.%u does not run here: build it with nvcc "
            "-arch=compute_%u, or set SIMCUDA_ARCH to what it has PTX for",
            arch / 10, arch % 10, arch);
    require(result == CUDA_SUCCESS, result);
    return translate_ptx(texts, log);
}

std::shared_ptr<Module> load_module(Context& context, std::shared_ptr<const ptx::Program> program) {
    auto module = std::make_shared<Module>(context, std::move(program));
    register_module(module);
    return module;
}

void register_module(std::shared_ptr<Module> module) {
    forget_modules_at_destroy(module->context());
    modules().add(std::move(module));
}

std::shared_ptr<Module> checked_module(CUmodule handle) {
    std::shared_ptr<Module> module = modules().find(handle);
    require(module != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return module;
}

void unload_module(CUmodule handle) {
    std::shared_ptr<Module> module = modules().remove(handle);
    require(module != nullptr, CUDA_ERROR_INVALID_HANDLE);
    module->unload();
}

std::string read_image(const char* path) {
    require(path != nullptr && *path != '\0', CUDA_ERROR_INVALID_VALUE);
    std::ifstream file(path, std::ios::binary);
    require(static_cast<bool>(file), CUDA_ERROR_FILE_NOT_FOUND);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace simcuda::driver

#include "tools/simcuda/runtime/registry.h"

#include "tools/simcuda/runtime/error.h"

namespace simcuda::runtime {

CUlibrary Binary::library(const Driver& cu) {
    std::lock_guard lock(mutex_);
    if (!library_) {
        CUlibrary loaded = nullptr;
        require(cu.cuLibraryLoadData(&loaded, wrapper_, nullptr, nullptr, 0, nullptr, nullptr, 0));
        library_ = loaded;
    }
    return library_;
}

void Binary::unload() {
    std::lock_guard lock(mutex_);
    if (!library_) return;
    cudaError_t error;
    if (const Driver* cu = driver(error)) cu->cuLibraryUnload(library_);
    library_ = nullptr;
}

Registry& Registry::instance() {
    static auto* registry = new Registry;  // never freed: programs unregister from exit handlers
    return *registry;
}

Binary* Registry::add_binary(const void* wrapper) {
    auto binary = std::make_unique<Binary>(wrapper);
    Binary* handle = binary.get();
    std::lock_guard lock(mutex_);
    binaries_.emplace(handle, std::move(binary));
    return handle;
}

void Registry::remove_binary(Binary* binary) {
    std::unique_ptr<Binary> removed;
    {
        std::lock_guard lock(mutex_);
        auto it = binaries_.find(binary);
        if (it == binaries_.end()) return;
        removed = std::move(it->second);
        binaries_.erase(it);
        std::erase_if(stand_ins_, [&](const auto& item) {
            auto kernel = kernels_.find(item.second);
            return kernel != kernels_.end() && kernel->second.binary == binary;
        });
        std::erase_if(kernels_, [&](const auto& item) { return item.second.binary == binary; });
        std::erase_if(variables_, [&](const auto& item) { return item.second.binary == binary; });
    }
    removed->unload();
}

void Registry::add_kernel(Binary* binary, const void* stand_in, const char* name) {
    std::lock_guard lock(mutex_);
    kernels_.insert_or_assign(stand_in, Named{binary, name});
}

void Registry::add_variable(Binary* binary, const void* stand_in, const char* name) {
    std::lock_guard lock(mutex_);
    variables_.insert_or_assign(stand_in, Named{binary, name});
}

void Registry::add_managed(Binary* binary, void** pointer, const char* name) {
    std::lock_guard lock(mutex_);
    binary->managed.push_back({pointer, name});
}

CUkernel Registry::kernel(const Driver& cu, const void* entry) {
    Named named;
    {
        std::lock_guard lock(mutex_);
        auto it = kernels_.find(entry);
        if (it == kernels_.end()) return known(cu, static_cast<CUkernel>(const_cast<void*>(entry)));
        if (it->second.kernel) return it->second.kernel;
        named = it->second;
    }
    // Not under the lock: the driver compiles what it loads.
    CUkernel kernel = nullptr;
    CUresult result = cu.cuLibraryGetKernel(&kernel, named.binary->library(cu), named.name.c_str());
    if (result == CUDA_ERROR_NOT_FOUND) throw Failure{cudaErrorInvalidDeviceFunction};
    require(result);
    std::lock_guard lock(mutex_);
    if (auto it = kernels_.find(entry); it != kernels_.end()) it->second.kernel = kernel;
    stand_ins_[kernel] = entry;
    return kernel;
}

CUkernel Registry::known(const Driver& cu, CUkernel handle) {
    if (stand_ins_.contains(handle)) return handle;
    const char* name = nullptr;
    bool kernel = cu.cuKernelGetName(&name, handle) == CUDA_SUCCESS;
    bool function = !kernel && cu.cuFuncGetName(&name, reinterpret_cast<CUfunction>(handle)) == CUDA_SUCCESS;
    require(kernel || function, cudaErrorInvalidDeviceFunction);
    stand_ins_[handle] = handle;
    return handle;
}

CUfunction Registry::function(const Driver& cu, const void* entry) {
    CUfunction function = nullptr;
    CUresult result = cu.cuKernelGetFunction(&function, kernel(cu, entry));
    if (result == CUDA_ERROR_INVALID_HANDLE) throw Failure{cudaErrorInvalidDeviceFunction};
    require(result);
    return function;
}

void* Registry::stand_in(CUkernel kernel) {
    std::lock_guard lock(mutex_);
    auto it = stand_ins_.find(kernel);
    return it == stand_ins_.end() ? static_cast<void*>(kernel) : const_cast<void*>(it->second);
}

std::optional<Registry::Named> Registry::find_variable(const void* stand_in) {
    std::lock_guard lock(mutex_);
    if (auto it = variables_.find(stand_in); it != variables_.end()) return it->second;
    // A program names a managed variable by the memory itself.
    for (const auto& [binary, owner] : binaries_) {
        for (const Binary::Managed& variable : binary->managed) {
            if (*variable.pointer == stand_in) return Named{binary, variable.name};
        }
    }
    return std::nullopt;
}

Symbol Registry::symbol(const Driver& cu, const void* stand_in) {
    std::optional<Named> named = find_variable(stand_in);
    require(named.has_value(), cudaErrorInvalidSymbol);
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    CUresult result =
        cu.cuLibraryGetGlobal(&address, &bytes, named->binary->library(cu), named->name.c_str());
    if (result == CUDA_ERROR_NOT_FOUND) {
        result = cu.cuLibraryGetManaged(&address, &bytes, named->binary->library(cu), named->name.c_str());
    }
    if (result == CUDA_ERROR_NOT_FOUND) throw Failure{cudaErrorInvalidSymbol};
    require(result);
    return {reinterpret_cast<void*>(address), bytes};
}

void Registry::initialise_managed(const Driver& cu, Binary* binary) {
    for (const Binary::Managed& variable : binary->managed) {
        CUdeviceptr address = 0;
        std::size_t bytes = 0;
        require(cu.cuLibraryGetManaged(&address, &bytes, binary->library(cu), variable.name.c_str()));
        *variable.pointer = reinterpret_cast<void*>(address);
    }
}

}  // namespace simcuda::runtime

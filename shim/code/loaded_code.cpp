#include "shim/code/loaded_code.h"
#include "shim/util/mutex.h"

#include <algorithm>
#include <utility>

namespace lms::code {

namespace {

// Their kernels reach other GPUs' memory and buffers that were registered with them.
bool is_communication(const std::string& kernel) {
    return kernel.find("nccl") != std::string::npos || kernel.find("nvshmem") != std::string::npos;
}

}  // namespace

void LoadedCode::loaded(Handle handle, CodeImage image, Handle context) {
    const util::Lock lock(mutex_);
    code_.insert_or_assign(handle, Code{std::move(image), context});
}

void LoadedCode::became(Handle module, Handle library, Handle context) {
    const util::Lock lock(mutex_);
    code_.insert_or_assign(module, Code{{}, context, library});
}

void LoadedCode::named(Handle function, Kernel kernel) {
    const util::Lock lock(mutex_);
    kernels_.insert_or_assign(function, NamedKernel{std::move(kernel)});
}

void LoadedCode::same(Handle function, Handle kernel, Handle context) {
    const util::Lock lock(mutex_);
    const auto it = kernels_.find(kernel);
    if (it == kernels_.end()) {
        kernels_.erase(function);
    } else {
        kernels_.insert_or_assign(function, NamedKernel{Kernel(it->second), context});
    }
}

// `is_gone(handle, code)` tells of modules and libraries; what they became or gave follows.
template <typename IsGone>
LoadedCode::Gone LoadedCode::drop(IsGone&& is_gone) {
    Gone gone;
    const auto take = [](auto& from, auto& to, auto&& wanted) {
        for (auto it = from.begin(); it != from.end();) {
            const auto entry = it++;
            if (wanted(*entry)) to.insert(from.extract(entry));
        }
    };
    take(code_, gone.code_, [&](const auto& entry) { return is_gone(entry.first, entry.second); });
    take(kernels_, gone.kernels_, [&](const auto& entry) { return gone.code_.contains(entry.second.owner); });
    return gone;
}

void LoadedCode::stays(Gone gone) {
    const util::Lock lock(mutex_);
    code_.merge(gone.code_);
    kernels_.merge(gone.kernels_);
}

LoadedCode::Gone LoadedCode::unloaded(Handle handle) {
    const util::Lock lock(mutex_);
    return drop([&](Handle each, const Code& code) { return each == handle || code.library == handle; });
}

LoadedCode::Gone LoadedCode::context_gone(Handle context) {
    const util::Lock lock(mutex_);
    std::erase_if(kernels_, [&](const auto& entry) { return entry.second.context == context; });
    return drop([&](Handle, const Code& code) { return code.context == context; });
}

LoadedCode::Handle LoadedCode::context_of(Handle module) const {
    const util::Lock lock(mutex_);
    const auto it = code_.find(module);
    return it == code_.end() ? nullptr : it->second.context;
}

std::optional<LoadedCode::Kernel> LoadedCode::kernel(Handle function) const {
    const util::Lock lock(mutex_);
    const auto it = kernels_.find(function);
    return it != kernels_.end() ? std::optional<Kernel>(it->second) : std::nullopt;
}

CodeImage* LoadedCode::image_of(std::span<const Handle> owners) {
    for (const Handle owner : owners) {
        auto it = code_.find(owner);
        if (it != code_.end() && it->second.library) it = code_.find(it->second.library);
        if (it != code_.end()) return &it->second.image;
    }
    return nullptr;
}

std::optional<std::vector<Parameter>> LoadedCode::layout_of(std::span<const Handle> owners,
                                                            const std::string& name) {
    const util::Lock lock(mutex_);
    if (CodeImage* image = image_of(owners)) {
        const auto* layout = image->layout_of(name);
        return layout ? std::optional(*layout) : std::nullopt;
    }
    // The module that a library became in a context need not be known.
    const std::vector<Parameter>* only = nullptr;
    for (auto& [handle, code] : code_) {
        const auto* layout = code.image.layout_of(name);
        if (layout && only && *layout != *only) return std::nullopt;
        if (layout) only = layout;
    }
    return only ? std::optional(*only) : std::nullopt;
}

KernelCode LoadedCode::code_of(std::span<const Handle> owners, const std::string& name) {
    if (is_communication(name)) return {.addresses = Addresses::Incomplete};
    const util::Lock lock(mutex_);
    if (CodeImage* const image = image_of(owners)) return image->kernel(name);
    KernelCode any;
    for (auto& [handle, code] : code_) {
        KernelCode one = code.image.kernel(name);
        if (one.addresses == Addresses::Incomplete) return one;
        if (one.addresses == Addresses::Complete) any.addresses = one.addresses;
        for (KernelAccess& access : one.accesses) {
            access.written = true;
            any.accesses.push_back(std::move(access));
        }
    }
    return any;
}

}  // namespace lms::code

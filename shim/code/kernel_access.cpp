#include "shim/code/kernel_access.h"

#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim/code/fat_binary.h"
#include "shim/code/ptx_taint.h"

namespace lms::engine {

namespace {

struct Code {
    std::vector<PackedCode> packed;
    std::vector<std::unique_ptr<PtxModule>> modules;  // of all that was packed, once it was looked at
};

// Never destroyed: other libraries' exit handlers unload modules.
struct Registry {
    std::mutex mutex;
    std::unordered_map<const void*, Code> loaded;
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

void keep(const void* handle, std::vector<PackedCode> ptx) {
    if (ptx.empty()) return;
    const std::lock_guard lock(registry().mutex);
    registry().loaded[handle] = Code{std::move(ptx), {}};
}

Addresses look(Code& code, std::string_view name) {
    for (const PackedCode& packed : code.packed) {
        if (auto text = unpack(packed)) code.modules.push_back(std::make_unique<PtxModule>(std::move(*text)));
    }
    code.packed.clear();
    Addresses result = Addresses::Unknown;
    for (const auto& module : code.modules) {
        const PtxModule::Answer answer = module->addresses_of(name);
        if (answer == PtxModule::Answer::Incomplete) return Addresses::Incomplete;
        if (answer == PtxModule::Answer::Complete) result = Addresses::Complete;
    }
    return result;
}

// Their kernels reach other GPUs' memory and buffers that were registered with them.
bool is_communication(std::string_view kernel) {
    return kernel.find("nccl") != std::string_view::npos || kernel.find("nvshmem") != std::string_view::npos;
}

}  // namespace

void code_loaded(const void* handle, const void* image) {
    if (image) keep(handle, find_ptx(image));
}

void code_loaded_from(const void* handle, const char* path) {
    if (!path) return;
    std::ifstream file(path, std::ios::binary);
    const std::string image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    keep(handle, find_ptx(image.data(), image.size()));
}

void code_unloaded(const void* handle) {
    const std::lock_guard lock(registry().mutex);
    registry().loaded.erase(handle);
}

Addresses addresses_of(std::span<const void* const> owners, std::string_view name) {
    if (is_communication(name)) return Addresses::Incomplete;
    const std::lock_guard lock(registry().mutex);
    for (const void* owner : owners) {
        const auto it = registry().loaded.find(owner);
        if (it != registry().loaded.end()) return look(it->second, name);
    }
    // A library's kernel may only tell the module that its library became in this context.
    Addresses result = Addresses::Unknown;
    for (auto& [handle, code] : registry().loaded) {
        const Addresses answer = look(code, name);
        if (answer == Addresses::Incomplete) return answer;
        if (answer == Addresses::Complete) result = answer;
    }
    return result;
}

}  // namespace lms::engine

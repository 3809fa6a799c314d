#include "shim/code/code_layouts.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "shim/code/fat_binary.h"
#include "shim/code/ptx_text.h"

namespace lms::engine {

namespace {

struct Code {
    std::vector<PackedCode> cubins;
    std::vector<PackedCode> ptx;
    CodeLayouts layouts;  // of all that was packed, once it was looked at
};

// Never destroyed: other libraries' exit handlers launch kernels and unload modules.
struct Registry {
    std::mutex mutex;
    std::unordered_map<const void*, Code> loaded;
    std::unordered_map<const void*, KernelName> names;
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

Code code_in(const void* image, std::optional<std::uint64_t> bytes, std::span<const unsigned> gpus) {
    Code code;
    code.cubins = find_cubins(image, bytes, gpus);
    if (code.cubins.empty()) code.ptx = find_ptx(image, bytes);
    return code;
}

void keep(const void* handle, Code code) {
    const std::lock_guard lock(registry().mutex);
    registry().loaded.insert_or_assign(handle, std::move(code));
}

bool same(const std::vector<Parameter>& a, const std::vector<Parameter>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Parameter& x, const Parameter& y) {
        return x.offset == y.offset && x.bytes == y.bytes;
    });
}

// Which of several codes runs only the driver knows: a kernel that they disagree about has no layout.
void look(Code& code) {
    std::unordered_set<std::string> disputed;
    const auto add = [&](CodeLayouts layouts) {
        for (auto& [name, layout] : layouts) {
            const auto [it, is_new] = code.layouts.try_emplace(name, layout);
            if (!is_new && !same(it->second, layout)) disputed.insert(name);
        }
    };
    for (const PackedCode& packed : std::exchange(code.cubins, {})) {
        if (const auto cubin = unpack(packed)) add(layouts_in_cubin(*cubin));
    }
    for (const PackedCode& packed : std::exchange(code.ptx, {})) {
        if (const auto text = unpack(packed)) add(layouts_in_ptx(*text));
    }
    for (const std::string& name : disputed) code.layouts.erase(name);
}

std::size_t round_up(std::size_t value, std::size_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

std::optional<std::vector<Parameter>> layout_of(const std::vector<PtxParameter>& declared) {
    std::vector<Parameter> layout;
    std::size_t end = 0;
    for (const PtxParameter& parameter : declared) {
        if (parameter.bytes == 0) return std::nullopt;
        const std::size_t offset = round_up(end, parameter.alignment);
        layout.push_back({offset, parameter.bytes});
        end = offset + parameter.bytes;
    }
    return layout;
}

}  // namespace

CodeLayouts layouts_in_ptx(std::string_view text) {
    CodeLayouts layouts;
    // In a fat binary it is padded with NULs.
    const auto module = index_ptx(text.substr(0, text.find('\0')));
    if (!module) return layouts;
    for (const auto& [name, function] : module->functions) {
        if (!function.is_entry) continue;
        const auto header = parse_ptx_header(function);
        if (!header) continue;
        if (auto layout = layout_of(header->parameters)) layouts.emplace(name, std::move(*layout));
    }
    return layouts;
}

void keep_code(const void* handle, const void* image, std::span<const unsigned> gpus) {
    if (image) keep(handle, code_in(image, std::nullopt, gpus));
}

void keep_code_from(const void* handle, const char* path, std::span<const unsigned> gpus) {
    if (!path) return;
    std::ifstream file(path, std::ios::binary);
    const std::string image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    keep(handle, code_in(image.data(), image.size(), gpus));
}

void drop_code(const void* handle) {
    const std::lock_guard lock(registry().mutex);
    registry().loaded.erase(handle);
    std::erase_if(registry().names, [&](const auto& noted) { return noted.second.owner == handle; });
}

std::optional<std::vector<Parameter>> layout_in_code(std::span<const void* const> owners,
                                                     std::string_view name) {
    const std::string key(name);
    const std::lock_guard lock(registry().mutex);
    const auto find = [&](Code& code) -> const std::vector<Parameter>* {
        look(code);
        const auto it = code.layouts.find(key);
        return it != code.layouts.end() ? &it->second : nullptr;
    };
    for (const void* owner : owners) {
        const auto it = registry().loaded.find(owner);
        if (it == registry().loaded.end()) continue;
        const auto* layout = find(it->second);
        return layout ? std::optional(*layout) : std::nullopt;
    }
    // The module that a library became in a context has no code of its own here.
    const std::vector<Parameter>* only = nullptr;
    for (auto& [handle, code] : registry().loaded) {
        const auto* layout = find(code);
        if (layout && only && !same(*layout, *only)) return std::nullopt;
        if (layout) only = layout;
    }
    return only ? std::optional(*only) : std::nullopt;
}

void note_name(const void* function, KernelName name) {
    const std::lock_guard lock(registry().mutex);
    registry().names.insert_or_assign(function, std::move(name));
}

void note_same(const void* function, const void* kernel) {
    const std::lock_guard lock(registry().mutex);
    const auto it = registry().names.find(kernel);
    if (it == registry().names.end()) {
        registry().names.erase(function);
    } else {
        registry().names[function] = KernelName(it->second);
    }
}

std::optional<KernelName> noted_name(const void* function) {
    const std::lock_guard lock(registry().mutex);
    const auto it = registry().names.find(function);
    return it != registry().names.end() ? std::optional(it->second) : std::nullopt;
}

}  // namespace lms::engine

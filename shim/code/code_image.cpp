#include "shim/code/code_image.h"

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "shim/code/ptx_layouts.h"

namespace lms::code {

CodeImage::CodeImage(const void* image, std::optional<std::uint64_t> bytes, const Keep& keep)
    : tells_addresses_(keep.addresses) {
    if (!image) return;
    if (keep.layouts) cubins_ = find_cubins(image, bytes, keep.gpus);
    layouts_in_ptx_ = keep.layouts && cubins_.empty();
    if (tells_addresses_ || layouts_in_ptx_) ptx_ = find_ptx(image, bytes, keep.gpus);
    tells_writes_ = tells_addresses_ && ptx_is_like_native(image, bytes, keep.gpus);
}

CodeImage CodeImage::of_file(const char* path, const Keep& keep) {
    if (!path) return {};
    std::ifstream file(path, std::ios::binary);
    const std::string image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    return CodeImage(image.data(), image.size(), keep);
}

void CodeImage::add(CodeLayouts layouts) {
    for (auto& [name, layout] : layouts) {
        const auto [it, is_new] = layouts_.try_emplace(name, layout);
        if (!is_new && it->second != layout) it->second.reset();
    }
}

void CodeImage::look() {
    for (const PackedCode& packed : std::exchange(cubins_, {})) {
        if (const auto cubin = unpack(packed)) add(layouts_in_cubin(*cubin));
    }
    for (const PackedCode& packed : std::exchange(ptx_, {})) {
        auto text = unpack(packed);
        // It may be what runs.
        tells_writes_ &= text.has_value();
        if (!text) continue;
        if (layouts_in_ptx_) add(layouts_in_ptx(*text));
        if (tells_addresses_) modules_.push_back(std::make_unique<PtxModule>(std::move(*text)));
    }
}

const std::vector<Parameter>* CodeImage::layout_of(const std::string& kernel) {
    look();
    const auto it = layouts_.find(kernel);
    return it != layouts_.end() && it->second ? &*it->second : nullptr;
}

KernelCode CodeImage::kernel(const std::string& name) {
    look();
    KernelCode kernel;
    ParameterWords written;
    for (const auto& module : modules_) {
        const PtxModule::Answer answer = module->addresses_of(name);
        if (answer == PtxModule::Answer::Absent) continue;
        if (answer == PtxModule::Answer::Incomplete) return {.addresses = Addresses::Incomplete};
        kernel.addresses = Addresses::Complete;
        written.add(module->written_by(name));
        for (KernelAccess access : module->accesses_of(name)) {
            access.written |= !tells_writes_;
            kernel.accesses.push_back(std::move(access));
        }
        if (tells_writes_) kernel.bounds.push_back(module->bounds_of(name));
    }
    // One that does nothing stands in for native code that is compiled from something else.
    if (written.none() && !tells_writes_) kernel.addresses = Addresses::Unknown;
    if (!written.none() && tells_writes_) kernel.written = written;
    return kernel;
}

}  // namespace lms::code

#include "shim/code/ptx_layouts.h"

#include <utility>

namespace lms::code {

namespace {

std::size_t round_up(std::size_t value, std::size_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

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

}  // namespace lms::code

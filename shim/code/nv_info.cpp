#include "shim/code/nv_info.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace lms::code {

namespace {

// Nothing where `bytes` has no whole T at `at`.
template <typename T>
std::optional<T> read(std::string_view bytes, std::uint64_t at) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
}

std::string_view part(std::string_view bytes, std::uint64_t at, std::uint64_t size) {
    if (at > bytes.size() || bytes.size() - at < size) return {};
    return bytes.substr(at, size);
}

std::string_view text_at(std::string_view bytes, std::uint64_t at) {
    if (at >= bytes.size()) return {};
    const std::size_t end = bytes.find('\0', at);
    return end == std::string_view::npos ? std::string_view() : bytes.substr(at, end - at);
}

// An item begins with {u8 format, u8 attribute, u16 value}; of a sized one the value is the bytes that
// follow.
struct Item {
    std::uint8_t format;
    std::uint8_t attribute;
    std::uint16_t value;
};
constexpr std::uint8_t kSized = 4;
constexpr std::uint8_t kBlockBytes = 0x19;      // its value: bytes of all parameters
constexpr std::uint8_t kSizedParameter = 0x17;  // sized
constexpr std::uint8_t kLargeParameter = 0x45;  // sized: where one of the kernel's is too large for the other

struct ParameterInfo {
    std::uint32_t index;
    std::uint16_t ordinal;
    std::uint16_t offset;
    std::uint32_t size;  // kSizedParameter: from bit 18; kLargeParameter: all of it
};
constexpr unsigned kSizeShift = 18;

std::optional<std::vector<Parameter>> layout_in(std::string_view info) {
    std::unordered_map<std::uint16_t, Parameter> by_ordinal;
    std::optional<std::uint16_t> block_bytes;
    for (std::uint64_t at = 0; at < info.size();) {
        const auto item = read<Item>(info, at);
        if (!item) return std::nullopt;
        at += sizeof(Item);
        if (item->attribute == kBlockBytes) block_bytes = item->value;
        if (item->format != kSized) continue;
        if (info.size() - at < item->value) return std::nullopt;
        if (item->attribute == kSizedParameter || item->attribute == kLargeParameter) {
            const auto it = read<ParameterInfo>(info.substr(at, item->value), 0);
            if (!it) return std::nullopt;
            const std::size_t bytes = item->attribute == kSizedParameter ? it->size >> kSizeShift : it->size;
            if (!by_ordinal.try_emplace(it->ordinal, Parameter{it->offset, bytes}).second)
                return std::nullopt;
        }
        at += item->value;
    }
    std::vector<Parameter> parameters;
    std::size_t end = 0;
    for (std::size_t i = 0; i < by_ordinal.size(); ++i) {
        const auto it = by_ordinal.find(static_cast<std::uint16_t>(i));
        if (it == by_ordinal.end() || it->second.offset < end) return std::nullopt;
        parameters.push_back(it->second);
        end = it->second.offset + it->second.bytes;
    }
    // The block ends with the last, and a block without parameters is not told.
    if (end != block_bytes.value_or(0)) return std::nullopt;
    return parameters;
}

}  // namespace

CodeLayouts layouts_in_cubin(std::string_view cubin) {
    CodeLayouts layouts;
    const auto header = read<Elf64_Ehdr>(cubin, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64) {
        return layouts;
    }
    const auto section = [&](std::uint64_t index) {
        // Too large to be a place wherever the product might not fit.
        return read<Elf64_Shdr>(cubin, index > cubin.size() || header->e_shoff > cubin.size()
                                           ? cubin.size()
                                           : header->e_shoff + index * header->e_shentsize);
    };
    // Numbers that do not fit into the header stand in the first section's.
    const auto first = section(0);
    if (!first || header->e_shentsize < sizeof(Elf64_Shdr)) return layouts;
    const std::uint64_t count = header->e_shnum ? header->e_shnum : first->sh_size;
    const auto name_section = section(header->e_shstrndx == SHN_XINDEX ? first->sh_link : header->e_shstrndx);
    if (!name_section) return layouts;
    const std::string_view names = part(cubin, name_section->sh_offset, name_section->sh_size);
    constexpr std::string_view kPrefix = ".nv.info.";
    for (std::uint64_t i = 1; i < count; ++i) {
        const auto it = section(i);
        if (!it) break;
        const std::string_view name = text_at(names, it->sh_name);
        if (!name.starts_with(kPrefix) || it->sh_type == SHT_NOBITS) continue;
        const std::string_view info = part(cubin, it->sh_offset, it->sh_size);
        if (info.size() != it->sh_size) continue;
        if (auto layout = layout_in(info))
            layouts.try_emplace(std::string(name.substr(kPrefix.size())), *layout);
    }
    return layouts;
}

}  // namespace lms::code

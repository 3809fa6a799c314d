#include "tools/simcuda/driver/host_object.h"

#include <elf.h>

#include <charconv>
#include <cstring>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/fatbin.h"

namespace simcuda::driver {
namespace {

// Where nvcc puts fat binaries: for linking on the device, and complete ones.
constexpr std::string_view kSections[] = {"__nv_relfatbin", ".nv_fatbin"};

constexpr std::string_view kArchiveMagic = "!<arch>\n";

struct MemberHeader {
    char name[16];
    char unused[32];
    char size[10];
    char end[2];
};
static_assert(sizeof(MemberHeader) == 60);

template <class T>
bool read_at(std::string_view from, std::uint64_t offset, T& value) {
    if (offset > from.size() || sizeof(T) > from.size() - offset) return false;
    std::memcpy(&value, from.data() + offset, sizeof(T));
    return true;
}

std::string_view part(std::string_view of, std::uint64_t offset, std::uint64_t bytes) {
    if (offset > of.size() || bytes > of.size() - offset) return {};
    return of.substr(offset, bytes);
}

// A section holds one fat binary after another, each at a multiple of 8.
CUresult find_in_section(std::string_view section, unsigned arch, std::vector<std::string>& modules) {
    CUresult result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (std::size_t at = 0; at < section.size();) {
        const std::size_t bytes = fat_binary_bytes(section.substr(at));
        if (bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
        std::vector<std::string> found;
        const CUresult one = find_ptx(section.data() + at, arch, found);
        if (one != CUDA_SUCCESS && one != CUDA_ERROR_NO_BINARY_FOR_GPU) return one;
        if (one == CUDA_SUCCESS) result = CUDA_SUCCESS;
        modules.insert(modules.end(), found.begin(), found.end());
        at += (bytes + 7) / 8 * 8;
    }
    return result;
}

std::string_view trimmed(std::string_view text) {
    return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::uint64_t number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    require(error == std::errc() && end == text.data() + text.size(), CUDA_ERROR_INVALID_IMAGE);
    return value;
}

// "name/", or "/offset" into the table of long names, where names end with "/\n".
std::string member_name(std::string_view field, std::string_view long_names) {
    std::string_view name = field;
    if (field.starts_with('/')) {
        const std::uint64_t offset = number(field.substr(1));
        require(offset < long_names.size(), CUDA_ERROR_INVALID_IMAGE);
        name = long_names.substr(offset, long_names.find('\n', offset) - offset);
    }
    if (name.ends_with('/')) name.remove_suffix(1);
    return std::string(name);
}

}  // namespace

CUresult find_ptx_in_object(std::string_view object, unsigned arch, std::vector<std::string>& modules) {
    Elf64_Ehdr header;
    if (!read_at(object, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
        return CUDA_ERROR_INVALID_IMAGE;
    const auto section_at = [&](std::uint64_t index, Elf64_Shdr& section) {
        return read_at(object, header.e_shoff + index * sizeof(Elf64_Shdr), section);
    };
    Elf64_Shdr section;
    if (!section_at(header.e_shstrndx, section)) return CUDA_ERROR_INVALID_IMAGE;
    const std::string_view names = part(object, section.sh_offset, section.sh_size);
    CUresult result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
        if (!section_at(i, section) || section.sh_name >= names.size()) return CUDA_ERROR_INVALID_IMAGE;
        const std::string_view name =
            names.substr(section.sh_name, names.find('\0', section.sh_name) - section.sh_name);
        if (name != kSections[0] && name != kSections[1]) continue;
        const CUresult one = find_in_section(part(object, section.sh_offset, section.sh_size), arch, modules);
        if (one != CUDA_SUCCESS && one != CUDA_ERROR_NO_BINARY_FOR_GPU) return one;
        if (one == CUDA_SUCCESS) result = CUDA_SUCCESS;
    }
    return result;
}

std::vector<ArchiveMember> members_of(std::string_view archive) {
    require(archive.starts_with(kArchiveMagic), CUDA_ERROR_INVALID_IMAGE);
    std::vector<ArchiveMember> members;
    std::string_view long_names;
    for (std::uint64_t at = kArchiveMagic.size(); at < archive.size();) {
        MemberHeader header;
        require(read_at(archive, at, header) && std::memcmp(header.end, "`\n", 2) == 0,
                CUDA_ERROR_INVALID_IMAGE);
        const std::uint64_t bytes = number(trimmed({header.size, sizeof header.size}));
        at += sizeof header;
        require(bytes <= archive.size() - at, CUDA_ERROR_INVALID_IMAGE);
        const std::string_view contents = archive.substr(at, bytes);
        const std::string_view name = trimmed({header.name, sizeof header.name});
        if (name == "//")
            long_names = contents;
        else if (name != "/" && name != "/SYM64/")
            members.push_back({member_name(name, long_names), std::string(contents)});
        at += bytes + bytes % 2;
    }
    return members;
}

}  // namespace simcuda::driver

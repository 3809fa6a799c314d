#include "shim/device/locate.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

namespace lms::device {
namespace {

// Layout of /etc/ld.so.cache since glibc 2.2: this header, the entries, then the strings they point to by
// offset from the header. Old caches put a libc5 table in front; the magic is then found further on, at a
// multiple of 8.
constexpr std::string_view kCacheMagic = "glibc-ld.so.cache1.1";
struct CacheHeader {
    char magic[20];
    std::uint32_t entries;
    std::uint32_t string_bytes;
    std::uint32_t unused[5];
};
static_assert(sizeof(CacheHeader) == 48);
struct CacheEntry {
    std::int32_t flags;
    std::uint32_t key;
    std::uint32_t value;
    std::uint32_t os_version;
    std::uint64_t hwcap;
};
static_assert(sizeof(CacheEntry) == 24);
constexpr std::int32_t kLibc6X8664 = 0x0303;
constexpr const char* kCacheFile = "/etc/ld.so.cache";

// The zero-terminated string at `offset`; empty if it is not wholly inside.
std::string_view string_at(std::string_view image, std::size_t offset) {
    if (offset >= image.size()) return {};
    const std::size_t end = image.find('\0', offset);
    if (end == std::string_view::npos) return {};
    return image.substr(offset, end - offset);
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_file(const char* path) {
    return {std::fopen(path, "rbe"), std::fclose};
}

// Whether the loader would take the file; it passes over libraries for other machines in silence.
bool is_library(const std::string& path) {
    Elf64_Ehdr header;
    const File file = open_file(path.c_str());
    return file != nullptr && std::fread(&header, sizeof header, 1, file.get()) == 1 &&
           std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
           header.e_machine == EM_X86_64;
}

struct SearchPath {
    std::vector<std::string> first;  // RPATH, LD_LIBRARY_PATH, RUNPATH
    std::vector<std::string> last;   // the default folders, searched after the cache
};

// The loader tells its search path for what is loaded as `name`, null: the main program, with $ORIGIN
// expanded and LD_LIBRARY_PATH as it was read at process start, whatever happened to the environment since.
SearchPath search_path(const char* name) {
    SearchPath path;
    void* program = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (program == nullptr) return path;
    Dl_serinfo size{};
    if (dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0) {
        const auto buffer =
            std::make_unique<std::max_align_t[]>(size.dls_size / sizeof(std::max_align_t) + 1);
        auto* info = reinterpret_cast<Dl_serinfo*>(buffer.get());
        std::memcpy(info, &size, sizeof size < size.dls_size ? sizeof size : size.dls_size);
        if (dlinfo(program, RTLD_DI_SERINFO, info) == 0) {
            for (unsigned i = 0; i < info->dls_cnt; ++i) {
                const bool is_default = (info->dls_serpath[i].dls_flags & LA_SER_DEFAULT) != 0;
                (is_default ? path.last : path.first).emplace_back(info->dls_serpath[i].dls_name);
            }
        }
    }
    dlclose(program);
    return path;
}

std::vector<std::string> loaded_libraries() {
    std::vector<std::string> names;
    const auto note = [](dl_phdr_info* info, std::size_t, void* into) {
        if (info->dlpi_name && info->dlpi_name[0] == '/')
            static_cast<std::vector<std::string>*>(into)->emplace_back(info->dlpi_name);
        return 0;
    };
    dl_iterate_phdr(note, &names);
    return names;
}

// The whole file, or what could be read of it.
std::string read_file(const char* path) {
    const File file = open_file(path);
    constexpr std::size_t kBlock = 64 << 10;  // the thread's stack may have no room for it
    std::string content;
    for (std::size_t end = 0; file != nullptr;) {
        content.resize(end + kBlock);
        const std::size_t bytes = std::fread(content.data() + end, 1, kBlock, file.get());
        content.resize(end += bytes);
        if (bytes == 0) break;
    }
    return content;
}

std::string absolute(const std::string& path) {
    char folder[PATH_MAX];
    if (path.starts_with('/') || getcwd(folder, sizeof folder) == nullptr) return path;
    return std::string(folder) + "/" + path;
}

}  // namespace

std::vector<std::string> cache_entries(std::string_view image, std::string_view soname) {
    std::vector<std::string> found;
    const std::size_t start = image.find(kCacheMagic);
    if (start == std::string_view::npos) return found;
    image.remove_prefix(start);
    CacheHeader header;
    if (image.size() < sizeof header) return found;
    std::memcpy(&header, image.data(), sizeof header);
    for (std::uint32_t i = 0; i < header.entries; ++i) {
        const std::size_t offset = sizeof header + std::size_t{i} * sizeof(CacheEntry);
        if (image.size() - sizeof(CacheEntry) < offset) break;
        CacheEntry entry;
        std::memcpy(&entry, image.data() + offset, sizeof entry);
        if (entry.flags != kLibc6X8664 || string_at(image, entry.key) != soname) continue;
        if (const std::string_view value = string_at(image, entry.value); !value.empty()) {
            found.emplace_back(value);
        }
    }
    return found;
}

std::vector<std::string> loader_candidates(std::string_view soname) {
    std::vector<std::string> found;
    const auto consider = [&found](const std::string& path) {
        if (is_library(path)) found.push_back(absolute(path));
    };
    const auto consider_in = [&](const std::vector<std::string>& folders) {
        for (const std::string& folder : folders) consider(folder + "/" + std::string(soname));
    };
    const SearchPath path = search_path(nullptr);
    consider_in(path.first);
    for (const std::string& entry : cache_entries(read_file(kCacheFile), soname)) consider(entry);
    consider_in(path.last);
    if (!found.empty()) return found;
    // A driver that is not the machine's (NixOS, bundles) is where the libraries that use it say.
    for (const std::string& library : loaded_libraries()) consider_in(search_path(library.c_str()).first);
    return found;
}

}  // namespace lms::device

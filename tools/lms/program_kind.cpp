#include "tools/lms/program_kind.h"

#include <elf.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace lms::tool {
namespace {

namespace fs = std::filesystem;

// As execvp finds it; empty where there is none.
fs::path find_program(const std::string& name) {
    if (name.find('/') != name.npos) return name;
    const char* const path = getenv("PATH");
    std::string folders = path == nullptr ? "/bin:/usr/bin" : path;
    for (std::size_t begin = 0; begin <= folders.size();) {
        const std::size_t end = std::min(folders.find(':', begin), folders.size());
        const fs::path file = fs::path(folders.substr(begin, end - begin)) / name;
        std::error_code ignored;
        if (fs::is_regular_file(file, ignored)) return file;
        begin = end + 1;
    }
    return {};
}

// Without an interpreter there is no dynamic loader, and nothing is preloaded.
bool is_static(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    Elf64_Ehdr head;
    if (!in.read(reinterpret_cast<char*>(&head), sizeof head)) return false;
    if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(Elf64_Phdr))
        return false;
    for (int i = 0; i < head.e_phnum; ++i) {
        Elf64_Phdr segment;
        in.seekg(static_cast<std::streamoff>(head.e_phoff + i * sizeof segment));
        if (!in.read(reinterpret_cast<char*>(&segment), sizeof segment)) return false;
        if (segment.p_type == PT_INTERP) return false;
    }
    return head.e_type == ET_EXEC || head.e_type == ET_DYN;
}

}  // namespace

std::string why_untouched(const std::string& program) {
    const fs::path file = find_program(program);
    struct stat status;
    if (!file.empty() && stat(file.c_str(), &status) == 0) {
        if ((status.st_mode & (S_ISUID | S_ISGID)) != 0)
            return fmt::format("{} runs as another user (set-uid), and the loader preloads nothing into it",
                               program);
        if (is_static(file))
            return fmt::format("{} is a static program, and the loader preloads nothing into it", program);
    }
    return fmt::format("{} allocated no GPU memory under the shim; nothing moved", program);
}

}  // namespace lms::tool

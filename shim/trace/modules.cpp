#include "shim/trace/modules.h"

#include <elf.h>
#include <errno.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

namespace lms::trace {
namespace {

// Each note's name and contents begin at a multiple of four.
std::size_t padded(std::size_t bytes) {
    return (bytes + 3) / 4 * 4;
}

std::string path_of(const dl_phdr_info& module) {
    std::error_code problem;
    const bool is_program = module.dlpi_name == nullptr || module.dlpi_name[0] == '\0';
    const auto path = is_program ? std::filesystem::read_symlink("/proc/self/exe", problem)
                                 : std::filesystem::absolute(module.dlpi_name, problem);
    return problem ? "" : path.string();
}

int add(dl_phdr_info* module, std::size_t, void* all) {
    Module one{.name = {}, .path = path_of(*module), .id = {}};
    const bool is_program = module->dlpi_name == nullptr || module->dlpi_name[0] == '\0';
    const std::string_view named = is_program ? program_invocation_name : module->dlpi_name;
    one.name = named.substr(named.rfind('/') + 1);
    for (int i = 0; i < module->dlpi_phnum && one.id.empty(); ++i) {
        const ElfW(Phdr)& segment = module->dlpi_phdr[i];
        if (segment.p_type != PT_NOTE) continue;
        one.id = build_id_in(
            {reinterpret_cast<const char*>(module->dlpi_addr + segment.p_vaddr), segment.p_memsz});
    }
    if (one.id.empty()) one.id = version_of(one.path);
    static_cast<std::vector<Module>*>(all)->push_back(std::move(one));
    return 0;
}

}  // namespace

std::vector<Module> loaded_modules() {
    std::vector<Module> all;
    dl_iterate_phdr(add, &all);
    return all;
}

std::string version_of(const std::string& path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) return {};
    return fmt::format("{}@{}.{:09}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

std::string build_id_in(std::string_view notes) {
    constexpr std::string_view kOwner("GNU\0", 4);
    ElfW(Nhdr) head;
    while (notes.size() >= sizeof head) {
        std::memcpy(&head, notes.data(), sizeof head);
        notes.remove_prefix(sizeof head);
        const std::size_t name = padded(head.n_namesz);
        if (name > notes.size() || head.n_descsz > notes.size() - name) break;
        if (head.n_type == NT_GNU_BUILD_ID && notes.substr(0, head.n_namesz) == kOwner) {
            std::string hex;
            for (const char byte : notes.substr(name, head.n_descsz))
                hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
            return hex;
        }
        notes.remove_prefix(std::min(notes.size(), name + padded(head.n_descsz)));
    }
    return {};
}

}  // namespace lms::trace

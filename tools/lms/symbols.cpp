#include "tools/lms/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "shim/trace/modules.h"
#include "tools/lms/progress.h"

extern char** environ;

namespace lms::tool {
namespace {

// "symbol+0x1f (module+0x2c40)", or "module+0x2c40" where no symbol is known.
struct Place {
    std::string module;
    std::string offset;
    bool named;
};

std::optional<Place> place_of(const std::string& frame) {
    const bool named = frame.ends_with(')');
    const std::size_t begin = named ? frame.rfind('(') : 0;
    const std::size_t plus = frame.rfind("+0x");
    if (begin == frame.npos || plus == frame.npos || plus < begin) return {};
    const std::size_t module = begin + (named ? 1 : 0);
    return Place{frame.substr(module, plus - module),
                 frame.substr(plus + 1, frame.size() - plus - 1 - (named ? 1 : 0)), named};
}

struct ElfFile {
    std::string build_id;
    bool has_lines = false;
};

std::string bytes_at(std::ifstream& file, std::uint64_t offset, std::uint64_t bytes) {
    constexpr std::uint64_t kMost = 1 << 20;
    std::string all(std::min(bytes, kMost), '\0');
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(all.data(), static_cast<std::streamsize>(all.size()));
    all.resize(static_cast<std::size_t>(file.gcount()));
    file.clear();
    return all;
}

template <typename Head>
std::vector<Head> heads_at(std::ifstream& file, std::uint64_t offset, std::size_t count) {
    const std::string bytes = bytes_at(file, offset, count * sizeof(Head));
    std::vector<Head> heads(bytes.size() / sizeof(Head));
    std::memcpy(static_cast<void*>(heads.data()), bytes.data(), heads.size() * sizeof(Head));
    return heads;
}

ElfFile look_at(const std::string& path) {
    ElfFile seen;
    std::ifstream file(path, std::ios::binary);
    const auto head = heads_at<Elf64_Ehdr>(file, 0, 1);
    if (head.empty() || std::memcmp(head[0].e_ident, ELFMAG, SELFMAG) != 0) return seen;
    for (const auto& segment : heads_at<Elf64_Phdr>(file, head[0].e_phoff, head[0].e_phnum)) {
        if (segment.p_type == PT_NOTE && seen.build_id.empty())
            seen.build_id = trace::build_id_in(bytes_at(file, segment.p_offset, segment.p_filesz));
    }
    const auto sections = heads_at<Elf64_Shdr>(file, head[0].e_shoff, head[0].e_shnum);
    if (head[0].e_shstrndx >= sections.size()) return seen;
    const Elf64_Shdr& names = sections[head[0].e_shstrndx];
    seen.has_lines = bytes_at(file, names.sh_offset, names.sh_size).find(".debug_line") != std::string::npos;
    return seen;
}

// What a program writes; nothing if it cannot be run.
std::string output_of(std::vector<std::string> command) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    pid_t child = 0;
    const bool runs = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t got = 0; runs && (got = read(ends[0], part.data(), part.size())) > 0;)
        text.append(part.data(), static_cast<std::size_t>(got));
    close(ends[0]);
    if (runs) waitpid(child, nullptr, 0);
    return text;
}

// Names as their authors write them.
std::string brief(std::string name) {
    constexpr std::string_view kLong =
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    for (std::size_t at = 0; (at = name.find(kLong, at)) != name.npos;)
        name.replace(at, kLong.size(), "std::string");
    return name;
}

std::string next_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    return line;
}

// What is new of a frame; empty: nothing.
std::string frame_of(const std::string& function, const std::string& line, const Place& place,
                     const std::string& before) {
    const bool has_line = !line.starts_with("??") && !line.ends_with(":?") && !line.ends_with(":0");
    if (function == "??" || (place.named && !has_line)) return {};
    const std::string where = has_line ? line.substr(0, line.find(' ')) : place.module + "+" + place.offset;
    return fmt::format(
        "{} ({})", place.named ? before.substr(0, before.rfind("+0x", before.rfind('('))) : function, where);
}

using Places = std::map<std::string, Place>;

void ask(const std::string& path, const Places& places, std::map<std::string, std::string>& better) {
    constexpr std::size_t kAtOnce = 500;  // words of a command
    for (auto it = places.begin(); it != places.end();) {
        std::vector<std::string> command = {"addr2line", "-Cfse", path};
        const auto first = it;
        for (; it != places.end() && command.size() < kAtOnce; ++it) command.push_back(it->second.offset);
        const std::string answers = output_of(std::move(command));
        std::string_view rest = answers;
        for (auto of = first; of != it; ++of) {
            const std::string function = brief(next_line(rest)), line = next_line(rest);
            if (function.empty() || line.empty()) return;
            if (std::string frame = frame_of(function, line, of->second, of->first); !frame.empty())
                better[of->first] = std::move(frame);
        }
    }
}

std::vector<trace::Module> modules_of(const Trace& trace) {
    std::vector<trace::Module> modules;
    const auto about = nlohmann::json::parse(trace.about, nullptr, false);
    if (!about.is_object() || !about.contains("modules") || !about["modules"].is_array()) return modules;
    for (const auto& one : about["modules"]) {
        if (!one.is_array() || one.size() != 3) continue;
        if (!one[0].is_string() || !one[1].is_string() || !one[2].is_string()) continue;
        modules.push_back({one[0], one[1], one[2]});
    }
    return modules;
}

}  // namespace

void resolve_call_sites(Trace& trace) {
    std::map<std::string, Places> by_module;
    for (const auto& site : trace.sites) {
        for (const std::string& frame : site) {
            if (auto place = place_of(frame)) by_module[place->module].emplace(frame, *place);
        }
    }
    std::map<std::string, std::string> better;
    const std::vector<trace::Module> modules = modules_of(trace);
    Progress progress("looking up functions and lines", modules.size());
    std::uint64_t done = 0;
    for (const trace::Module& module : modules) {
        progress.at(done++);
        const auto used = by_module.find(module.name);
        if (used == by_module.end()) continue;
        const ElfFile file = look_at(module.path);
        // Another file of that name by now has other functions there.
        const bool same =
            module.id == (file.build_id.empty() ? trace::version_of(module.path) : file.build_id);
        if (module.id.empty() || !same) continue;
        if (!file.has_lines) std::erase_if(used->second, [](const auto& each) { return each.second.named; });
        if (!used->second.empty()) ask(module.path, used->second, better);
        by_module.erase(used);
    }
    for (auto& site : trace.sites) {
        for (std::string& frame : site) {
            if (const auto found = better.find(frame); found != better.end()) frame = found->second;
        }
    }
}

}  // namespace lms::tool

// The compiler and its cache.
#include "tools/simcuda/ptx/compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

extern char** environ;

namespace simcuda::ptx {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kCacheLimit = std::uintmax_t{1} << 30;  // bytes; the least recently used go first

// No -ffast-math: results are the specification's. Nor -fno-trapping-math, which takes a float made an
// integer and a float again for rounding, and leaves it the sign of zero. errno is nobody's concern, signed
// overflow wraps, and memory has no types.
constexpr const char* kOptions[] = {"-x",
                                    "c",
                                    "-std=gnu11",
                                    "-O2",
                                    "-march=native",
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-fwrapv",
                                    "-fno-strict-aliasing",
                                    "-fno-stack-protector",
                                    "-fcf-protection=none",
                                    "-fno-asynchronous-unwind-tables",
                                    "-fvect-cost-model=dynamic",
                                    "-fvisibility=hidden",
                                    "-fPIC",
                                    "-shared",
                                    "-w"};

fs::path cache_folder() {
    if (const char* folder = std::getenv("SIMCUDA_CACHE"); folder && *folder) return folder;
    if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder)
        return fs::path(folder) / "simcuda";
    if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "simcuda";
    return fs::temp_directory_path() / fmt::format("simcuda-{}", getuid());
}

// The compiler, by its size and date, and what the CPU can do.
std::string environment_text() {
    std::string text;
    const char* const folders = std::getenv("PATH");
    std::string_view path = folders ? folders : "/usr/bin";
    while (!path.empty()) {
        const std::size_t end = std::min(path.find(':'), path.size());
        struct stat status {};
        if (stat((std::string(path.substr(0, end)) + "/cc").c_str(), &status) == 0) {
            text = fmt::format("cc {} {}\n", status.st_size, status.st_mtime);
            break;
        }
        path.remove_prefix(std::min(end + 1, path.size()));
    }
    std::ifstream cpu("/proc/cpuinfo");
    for (std::string line; std::getline(cpu, line);) {
        if (!line.starts_with("flags")) continue;
        text += line;
        break;
    }
    return text;
}

// 128-bit FNV-1a. Whoever can write to the cache can run code here anyway; this only has to tell texts apart.
std::string digest(std::initializer_list<std::string_view> parts) {
    unsigned __int128 hash = (static_cast<unsigned __int128>(0x6c62272e07bb0142) << 64) | 0x62b821756295c58d;
    const unsigned __int128 prime = (static_cast<unsigned __int128>(1) << 88) | 0x13b;
    for (std::string_view part : parts)
        for (char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * prime;
    return fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(hash >> 64),
                       static_cast<std::uint64_t>(hash));
}

// The part of an object's name that the kernel decides.
std::string kernel_name(std::string_view source) {
    std::string options;
    for (const char* option : kOptions) options += option;
    return digest({source, options});
}

// The folder "kernels" beside this library.
fs::path shipped_folder() {
    Dl_info here{};
    dladdr(reinterpret_cast<const void*>(&digest), &here);
    return fs::path(here.dli_fname ? here.dli_fname : "").parent_path() / "kernels";
}

std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Runs cc without what was preloaded into this process. Its verdict is the file it leaves: the program may
// have told the kernel to reap its children.
void run_compiler(const fs::path& source, const fs::path& object, const fs::path& log) {
    std::vector<const char*> arguments = {"cc"};
    arguments.insert(arguments.end(), std::begin(kOptions), std::end(kOptions));
    for (const char* argument :
         {"-o", object.c_str(), source.c_str(), "-lm", static_cast<const char*>(nullptr)})
        arguments.push_back(argument);
    std::vector<char*> environment;
    for (char** variable = environ; *variable; ++variable)
        if (std::strncmp(*variable, "LD_", 3) != 0) environment.push_back(*variable);
    environment.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // Signals this thread blocks or the program ignores are not the compiler's.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pid_t child = 0;
    const int failed = posix_spawnp(&child, "cc", &actions, &attributes, const_cast<char**>(arguments.data()),
                                    environment.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) {
        std::ofstream(log) << "cannot run cc: " << std::strerror(failed);
        return;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
}

void trim(const fs::path& folder) {
    struct Entry {
        fs::file_time_type used;
        std::uintmax_t bytes;
        fs::path path;
    };
    std::vector<Entry> entries;
    std::uintmax_t total = 0;
    std::error_code ignored;
    for (const fs::directory_entry& file : fs::directory_iterator(folder, ignored)) {
        const std::uintmax_t bytes = file.file_size(ignored);
        if (ignored || bytes == static_cast<std::uintmax_t>(-1)) continue;
        entries.push_back({file.last_write_time(ignored), bytes, file.path()});
        total += bytes;
    }
    if (total <= kCacheLimit) return;
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    for (const Entry& entry : entries) {
        if (total <= kCacheLimit) return;
        fs::remove(entry.path, ignored);
        total -= entry.bytes;
    }
}

}  // namespace

std::string shipped(const std::string& source) {
    static const fs::path folder = shipped_folder();
    // What x86-64-v3 means here.
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
        return {};
    std::error_code failure;
    const fs::path object = folder / (kernel_name(source) + ".so");
    return fs::exists(object, failure) ? object.string() : std::string();
}

std::string compile(const std::string& source, std::string& error) {
    static const std::string environment = digest({environment_text()});
    static std::atomic<unsigned> counter{0};
    const fs::path folder = cache_folder();
    std::error_code failure;
    fs::create_directories(folder, failure);
    const fs::path object = folder / (kernel_name(source) + "-" + environment + ".so");
    if (fs::exists(object, failure)) {
        fs::last_write_time(object, fs::file_time_type::clock::now(), failure);
        return object;
    }
    const std::string stem = fmt::format("tmp-{}-{}", getpid(), counter++);
    const fs::path text = folder / (stem + ".c");
    const fs::path made = folder / (stem + ".so");
    const fs::path log = folder / (stem + ".log");
    std::ofstream(text) << source;
    if (!fs::exists(text, failure)) {
        error =
            fmt::format("cannot write to the cache folder {} (SIMCUDA_CACHE names another)", folder.string());
        return {};
    }
    run_compiler(text, made, log);
    fs::rename(made, object, failure);
    if (failure) error = fmt::format("cc failed: {}", read_file(log).substr(0, 2000));
    const bool done = !failure;
    for (const fs::path& path : {text, log}) fs::remove(path, failure);
    if (!done) return {};
    trim(folder);
    return object;
}

}  // namespace simcuda::ptx

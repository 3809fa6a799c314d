// NVIDIA's own libraries, loaded under the shim over the fake driver: every lookup they make is recorded, and
// no hooked function of the driver may have reached them. They stop where the driver says that there is no
// device; they look their functions up before that.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

namespace fs = std::filesystem;
using namespace drivers;

namespace {

struct Library {
    std::string stem;
    // The first call of a program that uses the library; it makes the library look up what it does not at
    // load.
    void (*use)(void* handle);
    std::size_t lookups;  // fewer than these means that the test does not see them
};

template <typename... Arguments>
void call(void* handle, const char* name, Arguments... arguments) {
    void* const function = dlsym(handle, name);
    REQUIRE(function != nullptr);
    reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

void* out[4];  // handles and plans; what the calls leave here is of no interest

void create(void* handle, const char* name) {
    call(handle, name, out);
}

const Library kLibraries[] = {
    {"cudart", [](void* h) { call(h, "cudaFree", static_cast<void*>(nullptr)); }, 400},
    {"cublasLt", [](void* h) { create(h, "cublasLtCreate"); }, 400},
    {"cublas", [](void* h) { create(h, "cublasCreate_v2"); }, 400},
    {"cudnn", [](void* h) { create(h, "cudnnCreate"); }, 400},
    {"cufft", [](void* h) { call(h, "cufftPlan1d", out, 256, 0x29, 1); }, 10},
    {"curand", [](void* h) { call(h, "curandCreateGenerator", out, 100); }, 400},
    {"cusolver", [](void* h) { create(h, "cusolverDnCreate"); }, 400},
    {"cusparse", [](void* h) { create(h, "cusparseCreate"); }, 400},
    {"nccl", [](void* h) { call(h, "ncclCommInitAll", out, 1, static_cast<int*>(nullptr)); }, 400},
    {"nvrtc",
     [](void* h) {
         call(h, "nvrtcCreateProgram", out, "__global__ void k() {}", "k.cu", 0, nullptr, nullptr);
         call(h, "nvrtcCompileProgram", out[0], 0, nullptr);
     },
     1},
};

// Where the toolkit keeps its libraries; packages for Python keep each in a folder beside the others.
std::vector<fs::path> library_folders() {
    std::vector<fs::path> folders{CUDA_HOME "/lib64", CUDA_HOME "/lib"};
    std::error_code none;
    for (const fs::directory_entry& package :
         fs::directory_iterator(fs::path(CUDA_HOME).parent_path(), none)) {
        if (fs::is_directory(package.path() / "lib", none)) folders.push_back(package.path() / "lib");
    }
    return folders;
}

// The file of a library, empty if this machine has none.
std::string library_file(const std::string& stem) {
    std::error_code none;
    std::set<std::string> found;
    for (const fs::path& folder : library_folders()) {
        for (const fs::directory_entry& file : fs::directory_iterator(folder, none)) {
            if (file.path().filename().string().starts_with("lib" + stem + ".so")) found.insert(file.path());
        }
        if (!found.empty()) return *found.begin();
    }
    return "";
}

using Span = std::pair<std::uintptr_t, std::uintptr_t>;

// The memory of the loaded objects that are allowed to know the driver's functions: the shim and the driver.
std::vector<Span> own_memory() {
    std::vector<Span> spans;
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* all) {
            const std::string name = object->dlpi_name;
            if (!name.ends_with("/liblmsshim.so") && !name.ends_with("/libcuda.so.1")) return 0;
            for (int i = 0; i < object->dlpi_phnum; ++i) {
                const auto& segment = object->dlpi_phdr[i];
                if (segment.p_type != PT_LOAD) continue;
                const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
                static_cast<std::vector<Span>*>(all)->emplace_back(begin, begin + segment.p_memsz);
            }
            return 0;
        },
        &spans);
    return spans;
}

// The hooked functions of the driver whose addresses lie anywhere in the process's writable memory, stacks
// apart.
std::set<std::string_view> reached_directly() {
    std::vector<std::pair<std::uintptr_t, const table::Row*>> hooked;
    for (const table::Row& row : table::kRows) {
        const auto at = reinterpret_cast<std::uintptr_t>(address(row).exported);
        // Kept in disguise: this list is in the memory that is searched.
        if (row.action != table::Action::PASS) hooked.emplace_back(~at, &row);
    }
    std::sort(hooked.begin(), hooked.end());
    const std::vector<Span> own = own_memory();
    std::set<std::string_view> reached;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char mode[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, mode) != 3 || mode[0] != 'r' ||
            mode[1] != 'w') {
            continue;
        }
        if (line.ends_with("[stack]")) continue;
        for (std::uintptr_t at = begin; at < end; at += sizeof(std::uintptr_t)) {
            const std::uintptr_t word = *reinterpret_cast<const volatile std::uintptr_t*>(at);
            const auto found =
                std::lower_bound(hooked.begin(), hooked.end(), std::pair(~word, nullptr),
                                 [](const auto& a, const auto& b) { return a.first < b.first; });
            if (found == hooked.end() || found->first != ~word) continue;
            const bool is_own = std::any_of(own.begin(), own.end(), [at](const Span& span) {
                return at >= span.first && at < span.second;
            });
            if (!is_own) reached.insert(found->second->symbol);
        }
    }
    return reached;
}

}  // namespace

PROBE(use_library) {
    const char* file = std::getenv("LIBRARY_FILE");
    void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char* reason = handle == nullptr ? dlerror() : "";
    INFO(reason);
    REQUIRE(handle != nullptr);
    for (const Library& library : kLibraries) {
        if (library.stem == std::getenv("LIBRARY_STEM")) library.use(handle);
    }
    std::string reached;
    for (const std::string_view symbol : reached_directly()) reached += " " + std::string(symbol);
    CHECK(reached == "");
}

// The search itself must see a pointer that gets past the shim.
PROBE(search_sees_a_pointer_on_the_heap) {
    const table::Row* hooked =
        std::find_if(std::begin(table::kRows), std::end(table::kRows),
                     [](const auto& row) { return row.action != table::Action::PASS; });
    CHECK(reached_directly().empty());
    const std::vector<void*> kept{address(*hooked).exported};
    CHECK(reached_directly() == std::set<std::string_view>{hooked->symbol});
}

TEST_CASE("libraries: a driver function that got past the shim would be seen") {
    probe::run_probe("search_sees_a_pointer_on_the_heap", probe::preloaded()).check();
}

// How many lookups the shim's log tells of; fails the test for one that is not answered as the table says.
//
//   lms: dlsym cuInit: driver
//   lms: cuGetProcAddress cuInit version 2000 flags 0: driver cuInit
std::size_t check_lookups(const std::string& log) {
    static const std::regex pattern(
        R"(lms: (?:dlsym (\w+): (hook|driver)|cuGetProcAddress .*: (hook|driver) (\w+)))");
    std::size_t lookups = 0;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        if (!std::regex_match(line, match, pattern)) continue;
        ++lookups;
        const std::string symbol = match[1].matched ? match[1] : match[4];
        const std::string given = match[2].matched ? match[2] : match[3];
        const auto row = std::find_if(std::begin(table::kRows), std::end(table::kRows),
                                      [&](const table::Row& r) { return r.symbol == symbol; });
        CAPTURE(line);
        REQUIRE(row != std::end(table::kRows));
        CHECK((given == "hook") == (row->action != table::Action::PASS));
    }
    return lookups;
}

TEST_CASE("libraries: NVIDIA's libraries get every hooked function from the shim") {
    REQUIRE(!library_file("cudart").empty());
    for (const Library& library : kLibraries) {
        const std::string file = library_file(library.stem);
        if (file.empty()) {
            MESSAGE("not on this machine: " << library.stem);
            continue;
        }
        CAPTURE(file);
        const probe::Environment use{
            {"LIBRARY_FILE", file}, {"LIBRARY_STEM", library.stem}, {"LMS_LOG", "debug"}};
        const probe::Result result = probe::run_probe("use_library", probe::with(probe::preloaded(), use));
        CAPTURE(result.out);
        CHECK(result.status == 0);
        CHECK(check_lookups(result.err) >= library.lookups);
    }
}

TEST_CASE(
    "peers: programs with NVIDIA's runtime inside, static and shared, get every hooked function from the "
    "shim") {
    for (const char* name : {"runtime_static", "runtime_shared"}) {
        CAPTURE(name);
        probe::Environment environment = probe::with(probe::preloaded(), {{"LMS_LOG", "debug"}});
        environment["LD_LIBRARY_PATH"] += ":" CUDA_HOME "/lib64:" CUDA_HOME "/lib";
        const probe::Result result =
            probe::run({probe::built(std::string("interpose/") + name)}, environment);
        CHECK(result.status == 0);
        CHECK(result.out.starts_with("count 100 -1 no CUDA-capable device is detected\n"));
        CHECK(check_lookups(result.err) >= 400);
    }
}

// Which driver the shim finds: LMS_DRIVER, else what the loader would have found, and never itself.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "shim/device/locate.h"
#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

namespace fs = std::filesystem;

namespace {

// A folder of its own for each test, gone with it.
class Folder {
  public:
    Folder() {
        std::string pattern = (fs::temp_directory_path() / "lms-search-XXXXXX").string();
        path_ = mkdtemp(pattern.data());
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { fs::remove_all(path_); }
    fs::path operator/(const std::string& name) const { return path_ / name; }

  private:
    fs::path path_;
};

// The CUDA version of the driver behind a preloaded shim, or what it says instead.
std::string found_version(const probe::Environment& environment) {
    const probe::Result result = probe::run_probe(
        "driver_version", probe::with({{"LD_PRELOAD", probe::built("liblmsshim.so")}}, environment));
    return result.out + result.err;
}

// The image of a ld.so.cache: entries {flags, name, path}.
struct CacheLine {
    std::int32_t flags;
    std::string name;
    std::string path;
};
std::string cache_image(const std::vector<CacheLine>& entries) {
    constexpr std::size_t kHeader = 48;
    constexpr std::size_t kEntry = 24;
    std::string strings;
    std::string table;
    const auto put = [&table](auto value) {
        table.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    const auto add_string = [&](const std::string& text) {
        const auto offset = static_cast<std::uint32_t>(kHeader + entries.size() * kEntry + strings.size());
        strings.append(text).push_back('\0');
        return offset;
    };
    for (const CacheLine& entry : entries) {
        put(entry.flags);
        put(add_string(entry.name));
        put(add_string(entry.path));
        put(std::uint32_t{0});
        put(std::uint64_t{0});
    }
    std::string header = "glibc-ld.so.cache1.1";
    const auto count = static_cast<std::uint32_t>(entries.size());
    header.append(reinterpret_cast<const char*>(&count), sizeof count);
    header.resize(kHeader);
    return header + table + strings;
}

using Paths = std::vector<std::string>;

}  // namespace

PROBE(driver_version) {
    int version = -1;
    const auto call = reinterpret_cast<int (*)(int*)>(drivers::shim_function("cuDriverGetVersion"));
    const int result = call(&version);
    std::printf("%d", result == drivers::kSuccess ? version : -result);
}

// The file that a passed function comes from.
PROBE(driver_file) {
    Dl_info info{};
    dladdr(dlsym(drivers::libcuda(), "cuDriverGetVersion"), &info);
    std::printf("%s", info.dli_fname);
}

// LD_LIBRARY_PATH counts as it was when the process started.
PROBE(changed_environment) {
    setenv("LD_LIBRARY_PATH", std::getenv("OTHER"), 1);
    probe_driver_version();
}

TEST_CASE("search: the driver is found by LD_LIBRARY_PATH, in its order") {
    const std::string one = probe::built("interpose/driver");
    const std::string other = probe::built("interpose/old_driver");
    CHECK(found_version({{"LD_LIBRARY_PATH", one + ":" + other}}) == "13050");
    CHECK(found_version({{"LD_LIBRARY_PATH", other + ":" + one}}) == "11040");
    CHECK(found_version({{"LD_LIBRARY_PATH", "/nowhere:" + other}}) == "11040");
}

TEST_CASE("search: the program's own RUNPATH and RPATH count where the loader would count them") {
    const probe::Environment bare{{"LD_PRELOAD", probe::built("liblmsshim.so")}};
    const auto version = [](const char* program, const probe::Environment& environment) {
        return probe::run({probe::built(std::string("interpose/") + program)}, environment).out;
    };
    const std::string at_rpath = "init 100 version 0 11040 not hooked\n";  // too old for cuGetProcAddress_v2
    const std::string at_library_path = "init 100 version 0 13050 hooked\n";
    CHECK(version("linked_runpath", bare) == at_rpath);
    CHECK(version("linked_rpath", bare) == at_rpath);
    CHECK(version("linked_runpath", probe::preloaded()) == at_library_path);
    CHECK(version("linked_rpath", probe::preloaded()) == at_rpath);
}

// The loader itself is asked: what it opens by name is the first candidate. The libraries are glibc's, and
// not in use.
PROBE(first_candidate_is_the_loaders) {
    for (const char* soname : {"libanl.so.1", "libutil.so.1", "librt.so.1"}) {
        CAPTURE(soname);
        const Paths candidates = lms::device::loader_candidates(soname);
        void* const handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
        REQUIRE(handle != nullptr);
        REQUIRE(!candidates.empty());
        std::error_code error;
        CHECK(fs::equivalent(candidates.front(), static_cast<link_map*>(handle)->l_name, error));
    }
    CHECK(lms::device::loader_candidates("libno-such-library.so.1").empty());
}

TEST_CASE("search: the order of the search is the loader's") {
    const Folder folder;
    fs::create_directory(folder / "early");
    fs::copy_file(probe::built("interpose/neighbour_first.so"), folder / "early/libanl.so.1");
    for (const char* path : {"/nowhere", "/lib", "early"}) {
        const std::string library_path = path[0] == '/' ? path : (folder / path).string();
        probe::run_probe("first_candidate_is_the_loaders", {{"LD_LIBRARY_PATH", library_path}}).check();
    }
}

TEST_CASE("search: LMS_DRIVER comes first, by path") {
    const probe::Environment path{{"LD_LIBRARY_PATH", probe::built("interpose/driver")}};
    CHECK(found_version(probe::with(path, {{"LMS_DRIVER", probe::fake_driver("old_driver")}})) == "11040");
}

TEST_CASE("search: an LMS_DRIVER that is no driver is named in one line, and the search goes on") {
    const probe::Environment path{{"LD_LIBRARY_PATH", probe::built("interpose/driver")}};
    CHECK(found_version(probe::with(path, {{"LMS_DRIVER", "/nowhere/libcuda.so.1"}})) ==
          "13050lms: LMS_DRIVER=/nowhere/libcuda.so.1: /nowhere/libcuda.so.1: cannot open shared object "
          "file: No such "
          "file or directory; expected the path of a CUDA driver library, searching as the loader does\n");
    for (const std::string& self : {probe::built("liblmsshim.so"), std::string("libcuda.so.1")}) {
        CHECK(found_version(probe::with(path, {{"LMS_DRIVER", self}})) ==
              "13050lms: LMS_DRIVER=" + self +
                  ": this is the shim itself; expected the path of a CUDA driver library, searching as the "
                  "loader "
                  "does\n");
    }
}

TEST_CASE("search: a changed LD_LIBRARY_PATH does not change the driver, as it does not for the loader") {
    const probe::Result result =
        probe::run_probe("changed_environment",
                         probe::with(probe::preloaded(), {{"OTHER", probe::built("interpose/old_driver")}}));
    result.check();
    CHECK(result.out == "13050");
}

TEST_CASE(
    "search: the shim installed under the driver's name is passed over: the same file, a link, a copy") {
    const Folder folder;
    for (const char* name : {"link", "hard", "copy"}) fs::create_directory(folder / name);
    fs::create_symlink(probe::built("liblmsshim.so"), folder / "link/libcuda.so.1");
    fs::copy_file(probe::built("liblmsshim.so"), folder / "copy/libcuda.so.1");
    std::error_code error;
    fs::create_hard_link(probe::built("liblmsshim.so"), folder / "hard/libcuda.so.1", error);
    if (error) fs::copy_file(probe::built("liblmsshim.so"), folder / "hard/libcuda.so.1");
    const std::string driver = ":" + probe::built("interpose/driver");
    for (const char* name : {"link", "hard", "copy"}) {
        CAPTURE(name);
        const probe::Environment path{{"LD_PRELOAD", probe::built("liblmsshim.so")},
                                      {"LD_LIBRARY_PATH", (folder / name).string() + driver}};
        CHECK(found_version(path) == "13050");
        CHECK(probe::run_probe("driver_file", path).out == probe::fake_driver());
        CHECK(found_version({{"LD_LIBRARY_PATH", (folder / name).string()}}) == "-100");
    }
}

TEST_CASE("search: files that the loader would pass over are passed over in silence; a broken one is named") {
    const Folder folder;
    const std::string driver = ":" + probe::built("interpose/driver");
    fs::create_directory(folder / "text");
    std::ofstream(folder / "text/libcuda.so.1")
        << "not a library, but long enough to hold the header of one: "
           "this line goes on to its sixty-fourth character and beyond\n";
    CHECK(found_version({{"LD_LIBRARY_PATH", (folder / "text").string() + driver}}) == "13050");

    // 32-bit.
    fs::create_directory(folder / "other");
    fs::copy_file(probe::fake_driver(), folder / "other/libcuda.so.1");
    std::fstream(folder / "other/libcuda.so.1", std::ios::in | std::ios::out | std::ios::binary)
        .seekp(4)
        .put(1);
    CHECK(found_version({{"LD_LIBRARY_PATH", (folder / "other").string() + driver}}) == "13050");

    // A library by its header, without anything to load: its count of program headers is 0.
    fs::create_directory(folder / "broken");
    fs::copy_file(probe::fake_driver(), folder / "broken/libcuda.so.1");
    std::fstream(folder / "broken/libcuda.so.1", std::ios::in | std::ios::out | std::ios::binary)
        .seekp(56)
        .put(0);
    CHECK(found_version({{"LD_LIBRARY_PATH", (folder / "broken").string() + driver}}) == "13050");
    const std::string alone = found_version({{"LD_LIBRARY_PATH", (folder / "broken").string()}});
    CAPTURE(alone);
    CHECK(alone.starts_with("-100lms: no CUDA driver: "));
    CHECK(alone.find("broken/libcuda.so.1") != std::string::npos);
}

TEST_CASE("the loader's cache is read: this machine's entries only, in order") {
    constexpr std::int32_t kX8664 = 0x0303;
    constexpr std::int32_t kI386 = 0x0003;
    const std::string image = cache_image({{kX8664, "libcuda.so", "/a/libcuda.so"},
                                           {kI386, "libcuda.so.1", "/lib32/libcuda.so.1"},
                                           {kX8664, "libcuda.so.1", "/b/libcuda.so.1"},
                                           {kX8664, "libcuda.so.1", "/c/libcuda.so.1"},
                                           {kX8664, "libcuda.so.12", "/d/libcuda.so.12"}});
    const Paths expected{"/b/libcuda.so.1", "/c/libcuda.so.1"};
    CHECK(lms::device::cache_entries(image, "libcuda.so.1") == expected);
    // Behind a table of the old format.
    const std::string old = "ld.so-1.7.0" + std::string(37, '\0') + image;
    CHECK(lms::device::cache_entries(old, "libcuda.so.1") == expected);
    CHECK(lms::device::cache_entries("", "libcuda.so.1").empty());
    CHECK(lms::device::cache_entries("nonsense", "libcuda.so.1").empty());
}

TEST_CASE("search: a damaged cache is never read out of bounds") {
    // Images end at a page that cannot be read.
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* const pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    char* const end = static_cast<char*>(pages) + page;
    REQUIRE(mprotect(end, page, PROT_NONE) == 0);
    const auto entries_of = [end](const std::string& image) {
        std::memcpy(end - image.size(), image.data(), image.size());
        return lms::device::cache_entries({end - image.size(), image.size()}, "libcuda.so.1");
    };
    const std::string image =
        cache_image({{0x0303, "libcuda.so.1", "/b/libcuda.so.1"}, {0x0303, "libm.so.6", "/libm.so.6"}});
    for (std::size_t size = 0; size < image.size(); ++size)
        CHECK(entries_of(image.substr(0, size)).size() <= 1);
    for (std::size_t at = 20; at < 96; ++at) {
        std::string damaged = image;
        damaged[at] = '\xff';
        CHECK(entries_of(damaged).size() <= 1);
    }
    munmap(pages, 2 * page);
}

TEST_CASE("search: this machine's own cache lists what its loader finds") {
    std::ifstream file("/etc/ld.so.cache", std::ios::binary);
    const std::string image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const Paths found = lms::device::cache_entries(image, "libc.so.6");
    REQUIRE(!found.empty());
    for (const std::string& path : found) CHECK(fs::exists(path));
}

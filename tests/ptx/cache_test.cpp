// The cache of compiled code: shared between processes, whole or absent, and told apart by content.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/ptx/device.h"
#include "tests/support/child.h"
#include "tools/simcuda/ptx/compile.h"

namespace simcuda::testing {
namespace {

namespace fs = std::filesystem;

// A cache folder of a test's own.
class CacheFolder {
  public:
    CacheFolder() {
        use_private_cache();
        previous_ = std::getenv("SIMCUDA_CACHE");
        path_ = fs::path(previous_) / fmt::format("case-{}", ++count_);
        setenv("SIMCUDA_CACHE", path_.c_str(), 1);
    }
    ~CacheFolder() { setenv("SIMCUDA_CACHE", previous_.c_str(), 1); }
    const fs::path& path() const { return path_; }
    std::size_t files() const {
        return static_cast<std::size_t>(
            std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
    }

  private:
    inline static int count_ = 0;
    std::string previous_;
    fs::path path_;
};

TEST_CASE("cache: the second process takes what the first compiled, and several at once leave one object") {
    const CacheFolder cache;
    const std::string source = "int answer(void) { return 42; }";
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
        children.push_back(support::start_child([&] {
            std::string error;
            return ptx::compile(source, error).empty() ? 1 : 0;
        }));
    }
    for (const pid_t child : children) CHECK(support::end_of_child(child) == 0);
    REQUIRE(cache.files() == 1);
    const fs::path object = fs::directory_iterator(cache.path())->path();
    const auto inode = [&] {
        struct stat status {};
        REQUIRE(stat(object.c_str(), &status) == 0);
        return status.st_ino;
    };
    const auto before = inode();
    std::string error;
    CHECK(ptx::compile(source, error) == object);
    // With no compiler to be found, only the cache can answer.
    const std::string path = std::getenv("PATH");
    setenv("PATH", "/nonexistent", 1);
    CHECK(ptx::compile(source, error) == object);
    CHECK(inode() == before);
    CHECK(ptx::compile(source + " ", error).empty());
    CHECK(error.find("cannot run cc") != std::string::npos);
    setenv("PATH", path.c_str(), 1);
    CHECK(ptx::compile(source + " ", error) != object);
    CHECK(cache.files() == 2);
}

TEST_CASE("cache: an object that is broken is made anew") {
    const CacheFolder cache;
    const std::string text =
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 out)\n"
        "{ .reg .b64 %rd; ld.param.u64 %rd, [out]; st.global.u32 [%rd], 42; ret; }";
    const DeviceMemory out(4);
    const auto result = [&] {
        *out.as<int>() = 0;
        CHECK(run(Module(text), "k", 1, 1, out.address()).outcome == exec::Outcome::Finished);
        return *out.as<int>();
    };
    CHECK(result() == 42);
    REQUIRE(cache.files() == 1);
    const fs::path object = fs::directory_iterator(cache.path())->path();
    fs::resize_file(object, 100);
    CHECK(result() == 42);
    CHECK(fs::file_size(object) > 100);
}

TEST_CASE("cache: what was used longest ago goes when the cache is full") {
    const CacheFolder cache;
    const std::string kept = "int kept;", fresh = "int fresh;";
    std::string error;
    const fs::path old = ptx::compile(kept, error);
    // Two thirds of a GiB each, without taking the disk's space.
    const auto now = fs::file_time_type::clock::now();
    for (const char* name : {"older.so", "newer.so"}) {
        std::ofstream(cache.path() / name) << "x";
        fs::resize_file(cache.path() / name, 700u << 20);
    }
    fs::last_write_time(old, now - std::chrono::hours(3));
    fs::last_write_time(cache.path() / "older.so", now - std::chrono::hours(2));
    fs::last_write_time(cache.path() / "newer.so", now - std::chrono::hours(1));
    // To be found is to be used.
    REQUIRE(ptx::compile(kept, error) == old);
    const fs::path made = ptx::compile(fresh, error);
    CHECK(fs::exists(made));
    CHECK(fs::exists(old));
    CHECK_FALSE(fs::exists(cache.path() / "older.so"));
    CHECK(fs::exists(cache.path() / "newer.so"));
}

TEST_CASE(
    "cache: text that does not compile is an error with the compiler's words, and leaves nothing behind") {
    const CacheFolder cache;
    std::string error;
    CHECK(ptx::compile("this is not C", error).empty());
    CHECK(error.find("error:") != std::string::npos);
    CHECK(cache.files() == 0);
}

TEST_CASE("cache: a cache that cannot be written to is named") {
    const CacheFolder cache;
    fs::create_directories(cache.path());
    std::ofstream(cache.path() / "file") << "x";
    setenv("SIMCUDA_CACHE", (cache.path() / "file").c_str(), 1);
    std::string error;
    CHECK(ptx::compile("int x;", error).empty());
    CHECK(error.find("SIMCUDA_CACHE") != std::string::npos);
}

}  // namespace
}  // namespace simcuda::testing

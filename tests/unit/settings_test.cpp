#include "shim/util/settings.h"

#include <doctest/doctest.h>
#include <errno.h>
#include <stdlib.h>

#include <map>
#include <string>
#include <vector>

#include "shim/util/host_memory.h"
#include "shim/util/mappings.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

using lms::MemInfo;
using lms::Safety;
using lms::Settings;

static bool set_uid = false;

// As glibc's in a program of which `set_uid` is true. This one is found first.
extern "C" char* secure_getenv(const char* name) noexcept {
    return set_uid ? nullptr : getenv(name);
}

namespace {

struct Parsed {
    Settings settings;
    std::vector<std::string> problems;
};

Parsed parse(const std::map<std::string, std::string>& environment) {
    Parsed parsed;
    const auto getter = [&environment](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
    };
    parsed.settings = lms::parse_settings(getter, parsed.problems);
    return parsed;
}

void check_same(const Settings& a, const Settings& b) {
    for (const lms::Setting& setting : lms::settings_table()) {
        CAPTURE(setting.variable);
        CHECK(setting.show(a) == setting.show(b));
    }
}

}  // namespace

TEST_CASE("settings: the defaults") {
    const Parsed parsed = parse({});
    CHECK(parsed.problems.empty());
    const Settings& s = parsed.settings;
    CHECK(s.threshold_bytes == 2u << 20);
    CHECK_FALSE(s.frac);
    CHECK_FALSE(s.limit_bytes);
    CHECK_FALSE(s.reserve_bytes);
    CHECK_FALSE(s.host_limit_bytes);
    CHECK_FALSE(s.soft_limit_bytes);
    CHECK(s.share == lms::util::ShareTerms{.shares = true, .asked = false, .weight = 1});
    CHECK(s.share_folder.empty());
    CHECK(s.meminfo == MemInfo::Physical);
    CHECK(s.frameworks == "auto");
    CHECK(s.safety == Safety::Opaque);
    CHECK(s.host_mapping == lms::HostMapping::Auto);
    CHECK_FALSE(s.check);
    CHECK(s.exempt == lms::default_exempt());
    CHECK(s.policy == "next-use");
    CHECK(s.log_level == lms::log::Level::Warn);
    CHECK(s.log_path.empty());
    CHECK(s.stats_path.empty());
    CHECK(s.trace_path.empty());
    CHECK_FALSE(s.trace_file_bytes);
    CHECK(s.driver_path.empty());
}

TEST_CASE("settings: every variable is read") {
    const Parsed parsed = parse({{"LMS_THRESHOLD", "512"},
                                 {"LMS_FRAC", "0.25"},
                                 {"LMS_LIMIT", "64M"},
                                 {"LMS_SHARE", "weight=2,min=4G,priority=1"},
                                 {"LMS_SHARE_DIR", "/shared"},
                                 {"LMS_RESERVE", "0"},
                                 {"LMS_HOST_LIMIT", "1.5G"},
                                 {"LMS_SOFT_LIMIT", "48M"},
                                 {"LMS_MEMINFO", "enlarged"},
                                 {"LMS_FRAMEWORKS", "pytorch,jax"},
                                 {"LMS_SAFETY", "strict"},
                                 {"LMS_HOST_MAPPING", "off"},
                                 {"LMS_RETAIN", "0"},
                                 {"LMS_CHECK", "1"},
                                 {"LMS_EXEMPT", "liba,libb.so"},
                                 {"LMS_POLICY", "./mine.so"},
                                 {"LMS_LOG", "debug:/tmp/log:%p"},
                                 {"LMS_STATS", "s.json"},
                                 {"LMS_TRACE", "t.json"},
                                 {"LMS_TRACE_SIZE", "64M"},
                                 {"LMS_DRIVER", "/opt/libcuda.so.1"}});
    CHECK(parsed.problems.empty());
    const Settings& s = parsed.settings;
    CHECK(s.threshold_bytes == 512 * 1024);  // IBM's LMS counts KiB
    CHECK(s.frac == 0.25);
    CHECK(s.limit_bytes == 64ull << 20);
    CHECK(s.reserve_bytes == 0);
    CHECK(s.host_limit_bytes == 3ull << 29);
    CHECK(s.soft_limit_bytes == 48ull << 20);
    CHECK(s.share == lms::util::ShareTerms{true, true, 2, 4ull << 30, 1});
    CHECK(s.share_folder == "/shared");
    CHECK(s.meminfo == MemInfo::Enlarged);
    CHECK(s.frameworks == "pytorch,jax");
    CHECK(s.safety == Safety::Strict);
    CHECK(s.host_mapping == lms::HostMapping::Off);
    CHECK(s.check);
    CHECK(s.exempt == std::vector<std::string>{"liba", "libb.so"});
    CHECK(s.policy == "./mine.so");
    CHECK(s.log_level == lms::log::Level::Debug);
    CHECK(s.log_path == "/tmp/log:%p");
    CHECK(s.stats_path == "s.json");
    CHECK(s.trace_path == "t.json");
    CHECK(s.trace_file_bytes == 64ull << 20);
    CHECK(s.driver_path == "/opt/libcuda.so.1");
}

TEST_CASE("settings: the edges of what is accepted") {
    CHECK(parse({{"LMS_THRESHOLD", "0"}}).settings.threshold_bytes == 0);
    CHECK(parse({{"LMS_THRESHOLD", "100B"}}).settings.threshold_bytes == 100);
    CHECK(parse({{"LMS_THRESHOLD", "4M"}}).settings.threshold_bytes == 4u << 20);
    CHECK(parse({{"LMS_FRAC", "0"}}).settings.frac == 0.0);
    CHECK(parse({{"LMS_FRAC", "1"}}).settings.frac == 1.0);
    CHECK(parse({{"LMS_HOST_LIMIT", "0"}}).settings.host_limit_bytes == 0);
    CHECK(parse({{"LMS_LOG", "off"}}).settings.log_level == lms::log::Level::Off);
    CHECK(parse({{"LMS_SAFETY", "args"}}).settings.safety == Safety::Args);
    CHECK(parse({{"LMS_EXEMPT", "none"}}).settings.exempt.empty());
    CHECK(parse({{"LMS_FRAC", ""}}).problems.empty());  // empty is unset
}

TEST_CASE("settings: a bad value gives one line and the default") {
    const std::pair<const char*, const char*> bad[] = {
        {"LMS_THRESHOLD", "big"},   {"LMS_THRESHOLD", "-1"},      {"LMS_FRAC", "1.01"},
        {"LMS_FRAC", "-0.1"},       {"LMS_FRAC", "nan"},          {"LMS_FRAC", "90%"},
        {"LMS_FRAC", "0,5"},        {"LMS_LIMIT", "0"},           {"LMS_LIMIT", "64X"},
        {"LMS_SOFT_LIMIT", "0"},    {"LMS_SOFT_LIMIT", "all"},    {"LMS_RESERVE", "M"},
        {"LMS_HOST_LIMIT", "1e9"},  {"LMS_MEMINFO", "Physical"},  {"LMS_SAFETY", "none"},
        {"LMS_EXEMPT", "a,,b"},     {"LMS_EXEMPT", "a,"},         {"LMS_EXEMPT", ","},
        {"LMS_CHECK", "yes"},       {"LMS_CHECK", "2"},           {"LMS_HOST_MAPPING", "1"},
        {"LMS_SHARE", "weight"},    {"LMS_SHARE", "weight=0"},    {"LMS_SHARE", "weight=1001"},
        {"LMS_SHARE", "min=4X"},    {"LMS_SHARE", "priority=-1"}, {"LMS_SHARE", "priority=101"},
        {"LMS_SHARE", "weight=1,"}, {"LMS_SHARE", "off,min=1"},   {"LMS_SHARE", "min=1,min=2"},
        {"LMS_SHARE", ",min=1"},    {"LMS_SHARE", "share=1"},     {"LMS_SHARE_DIR", "shared"},
        {"LMS_LOG", "verbose"},     {"LMS_LOG", "debug:"},        {"LMS_LOG", "/tmp/log"},
    };
    for (const auto& [name, value] : bad) {
        const std::string setting = std::string(name) + "=" + value;
        CAPTURE(setting);
        const Parsed parsed = parse({{name, value}});
        REQUIRE(parsed.problems.size() == 1);
        const std::string& line = parsed.problems[0];
        CHECK(line.starts_with(std::string(name) + "=" + value + ": expected "));
        CHECK(line.find("; using the default, ") != line.npos);
        CHECK(line.find('\n') == line.npos);
        check_same(parsed.settings, Settings{});
    }
    CHECK(parse({{"LMS_FRAC", "2"}}).problems[0] ==
          "LMS_FRAC=2: expected a number from 0 to 1; using the default, 1, or 0.9 with lms");
}

TEST_CASE("settings: what is shown reads back as the same") {
    for (const char* terms : {"off", "weight=7", "weight=1,min=4G", "weight=2,min=1.5G,priority=3"})
        CHECK(lms::util::format_share_terms(parse({{"LMS_SHARE", terms}}).settings.share) == terms);
    const Parsed parsed =
        parse({{"LMS_THRESHOLD", "100B"}, {"LMS_FRAC", "0.1"}, {"LMS_LIMIT", "1.5G"}, {"LMS_LOG", "info:x"}});
    for (const lms::Setting& setting : lms::settings_table()) {
        const std::string shown = setting.show(parsed.settings);
        if (shown.empty()) continue;
        CAPTURE(setting.variable);
        Settings again;
        CHECK(setting.parse(shown, again));
        CHECK(setting.show(again) == shown);
    }
}

TEST_CASE("settings: unknown LMS_ variables are named with the nearest known one") {
    const char* environment[] = {
        "PATH=/bin", "LMS_FRACTION=1", "LMS_TRESHOLD=3", "LMS_LIMIT=4", "XLMS_LIMIT=1",
        "LMS_=",     "LMS_log=debug",  "LMS_NOSUCH=1",   nullptr};
    const auto lines = lms::unknown_variables(environment);
    REQUIRE(lines.size() == 5);
    CHECK(lines[0] == "LMS_FRACTION is not a setting; the nearest is LMS_FRAC");
    CHECK(lines[1] == "LMS_TRESHOLD is not a setting; the nearest is LMS_THRESHOLD");
    CHECK(lines[2] == "LMS_ is not a setting; `lms settings` lists them");
    CHECK(lines[3] == "LMS_log is not a setting; the nearest is LMS_LOG");
    CHECK(lines[4] == "LMS_NOSUCH is not a setting; `lms settings` lists them");
    CHECK(lms::unknown_variables(nullptr).empty());
}

TEST_CASE("settings: a set-uid program takes none from the environment of its user") {
    for (const bool secure : {false, true}) {
        CAPTURE(secure);
        CHECK(support::in_child([&] {
                  set_uid = secure;
                  setenv("LMS_POLICY", "/tmp/policy.so", 1);
                  setenv("LMS_STATS", "/tmp/stats", 1);
                  const Settings& read = lms::settings();
                  const bool none = read.policy == "next-use" && read.stats_path.empty();
                  const bool all = read.policy == "/tmp/policy.so" && read.stats_path == "/tmp/stats";
                  _exit((secure ? none : all) ? 0 : 1);
              }) == 0);
    }
}

TEST_CASE("settings: docs/reference/settings.md has a row for each") {
    std::ifstream file("docs/reference/settings.md");
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    for (const lms::Setting& setting : lms::settings_table()) {
        CAPTURE(setting.variable);
        CHECK(page.find("\n| `" + std::string(setting.variable) + "` |") != page.npos);
    }
}

TEST_CASE("host memory: what the machine has available, without a cgroup") {
    const Scratch root;
    CHECK(lms::util::host_headroom_bytes(root.path()) > 0);  // no /proc here: what the kernel calls free
    root.put("proc/meminfo", "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:   4000 kB\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 4000 * 1024);
}

TEST_CASE("host memory: version 2 cgroups, each level, dropping file cache") {
    const Scratch root;
    root.put("proc/meminfo", "MemAvailable: 4000 kB\n");
    root.put("proc/self/cgroup", "0::/a/b\n");
    root.put("sys/fs/cgroup/a/b/memory.max", "max\n");
    root.put("sys/fs/cgroup/a/b/memory.current", "500000\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 4000 * 1024);
    root.put("sys/fs/cgroup/a/memory.max", "1000000\n");
    root.put("sys/fs/cgroup/a/memory.current", "700000\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 300000);
    root.put("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 60000\nactive_file 40000\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 400000);
    root.put("sys/fs/cgroup/a/b/memory.max", "500100\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 100);
    root.put("sys/fs/cgroup/a/b/memory.max", "400000\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 0);
}

TEST_CASE("host memory: a container's own cgroup is at the mount point, its path is the host's") {
    const Scratch root;
    root.put("proc/meminfo", "MemAvailable: 4000 kB\n");
    root.put("proc/self/cgroup", "0::/docker/0123\n");
    root.put("sys/fs/cgroup/memory.max", "2000\n");
    root.put("sys/fs/cgroup/memory.current", "1500\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 500);
}

TEST_CASE("host memory: version 1 cgroups") {
    const Scratch root;
    root.put("proc/meminfo", "MemAvailable: 4000 kB\n");
    root.put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n1:name=systemd:/\n0::/\n");
    root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "123\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 4000 * 1024);
    root.put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
    root.put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900000\n");
    root.put("sys/fs/cgroup/memory/job/memory.stat",
             "inactive_file 1\nactive_file 1\ntotal_inactive_file 30000\ntotal_active_file 20000\n");
    CHECK(lms::util::host_headroom_bytes(root.path()) == 150000);
}

TEST_CASE("host memory: a sixteenth of the machine and of each cgroup is left alone") {
    const Scratch root;
    CHECK(lms::util::host_spare(root.path()).bytes() < lms::util::host_headroom_bytes(root.path()));
    root.put("proc/meminfo", "MemTotal: 16000 kB\nMemAvailable: 4000 kB\n");
    CHECK(lms::util::host_spare(root.path()).bytes() == 3000 * 1024);
    root.put("proc/self/cgroup", "0::/a\n");
    root.put("sys/fs/cgroup/a/memory.max", "1600000\n");
    root.put("sys/fs/cgroup/a/memory.current", "500000\n");
    CHECK(lms::util::host_spare(root.path()).bytes() == 1000000);
    root.put("sys/fs/cgroup/a/memory.current", "1550000\n");
    CHECK(lms::util::host_spare(root.path()).bytes() == 0);
}

TEST_CASE("host memory: a look is as old as is asked for") {
    using namespace std::chrono_literals;
    const Scratch root;
    lms::util::HostMemory memory;
    memory.look_below(root.path());
    errno = 7;
    memory.spare_bytes(0ms);  // finds none of the files
    CHECK(errno == 7);
    root.put("proc/meminfo", "MemAvailable: 4000 kB\n");
    memory.look_below(root.path());
    CHECK(memory.spare_bytes(24h) == 4000 * 1024);
    root.put("proc/meminfo", "MemAvailable: 3000 kB\n");
    CHECK(memory.spare_bytes(24h) == 4000 * 1024);
    CHECK(memory.spare_bytes(0ms) == 3000 * 1024);
    CHECK(memory.spare_bytes(24h) == 3000 * 1024);
}

TEST_CASE("host memory: NUMA nodes, the nearest first, those without memory never") {
    const Scratch root;
    const auto nodes = [&](int nearest) { return lms::util::numa_nodes_by_preference(nearest, root.path()); };
    CHECK(nodes(2) == std::vector<int>{2});
    CHECK(nodes(-1).empty());
    root.put("sys/devices/system/node/has_memory", "0-2,5\n");
    CHECK(nodes(0) == std::vector<int>{0, 1, 2, 5});
    CHECK(nodes(5) == std::vector<int>{5, 0, 1, 2});
    CHECK(nodes(3) == std::vector<int>{0, 1, 2, 5});
    CHECK(nodes(-1) == std::vector<int>{0, 1, 2, 5});
    root.put("sys/devices/system/node/has_memory", "1");
    CHECK(nodes(0) == std::vector<int>{1});
}

TEST_CASE("mappings: counted, and near their end when a 64th is left") {
    const Scratch root;
    CHECK_FALSE(lms::util::mappings(root.path().c_str()).at_end());  // not known here
    std::string maps;
    for (int i = 0; i < 984; ++i) maps += std::string(static_cast<std::size_t>(i % 97), 'x') + "\n";
    root.put("proc/self/maps", maps);
    root.put("proc/sys/vm/max_map_count", "1000\n");
    CHECK(lms::util::mappings(root.path("").c_str()).there == 984);
    CHECK(lms::util::mappings(root.path("").c_str()).allowed == 1000);
    CHECK_FALSE(lms::util::mappings(root.path("").c_str()).at_end());
    root.put("proc/self/maps", maps + "x\n");
    CHECK(lms::util::mappings(root.path("").c_str()).at_end());
    CHECK(lms::util::mappings().there > 10);
    CHECK(lms::util::mappings().allowed > 1000);
}

TEST_CASE("host memory: this machine tells") {
    CHECK(lms::util::host_headroom_bytes() > 0);
    CHECK(lms::util::host_limit_bytes({}) > 0);
    CHECK(lms::util::host_limit_bytes({}) < lms::util::machine_bytes());
    CHECK(lms::util::host_limit_bytes(1) == 1);
    CHECK(lms::util::host_limit_bytes(UINT64_MAX) == lms::util::machine_bytes());
}

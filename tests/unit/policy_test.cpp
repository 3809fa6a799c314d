#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "policy/host.h"
#include "shim/util/log.h"
#include "shim/util/trust.h"
#include "tests/support/scratch.h"

using lms::engine::ChunkId;
using lms::engine::kNoChunk;
using lms::policy::Host;

namespace {

constexpr std::uint64_t kThreshold = 1000;

std::unique_ptr<Host> make(const std::string& name, std::optional<double> frac = {}) {
    std::unique_ptr<Host> host = Host::create(name, frac, kThreshold);
    REQUIRE(name.ends_with(std::string(host->name()) + (name.ends_with(".so") ? ".so" : "")));
    return host;
}

bool any(ChunkId) {
    return true;
}

void add_resident(Host& host, std::initializer_list<std::uint64_t> sizes) {
    ChunkId chunk = 0;
    for (const std::uint64_t bytes : sizes) {
        host.added({chunk, bytes, 0});
        host.resident(chunk++);
    }
}

// Evicts until nothing is left.
std::vector<ChunkId> eviction_order(Host& host, std::uint64_t need_bytes = 1) {
    std::vector<ChunkId> order;
    for (ChunkId chunk; (chunk = host.next_victim({need_bytes}, any)) != kNoChunk;) {
        order.push_back(chunk);
        host.evicted(chunk);
    }
    return order;
}

using Order = std::vector<ChunkId>;

// The policies as built into the shim and as built for loading.
constexpr const char* kLruForms[] = {"lru", "build/policy/lru.so"};
constexpr const char* kLmsForms[] = {"lms", "build/policy/lms.so"};
constexpr const char* kAllForms[] = {"lru",      "build/policy/lru.so",     "lms", "build/policy/lms.so",
                                     "next-use", "build/policy/next-use.so"};

std::string problem_with(const std::string& name) {
    std::string problem;
    CHECK(lms::policy::find(name, problem) == nullptr);
    CHECK(problem.find('\n') == problem.npos);
    return problem;
}

// Compiles a plugin and returns its path.
std::string build(const ::Scratch& scratch, const std::string& name, const std::string& source,
                  const std::string& headers = "include") {
    scratch.put(name + ".c", source);
    const std::string command = "cc -Wall -Werror -shared -fPIC -I" + headers + " -o " +
                                scratch.path(name + ".so") + " " + scratch.path(name + ".c");
    REQUIRE(system(command.c_str()) == 0);
    return scratch.path(name + ".so");
}

}  // namespace

TEST_CASE("policy: the threshold parts managed from unmanaged") {
    for (const char* name : kAllForms) {
        CAPTURE(name);
        const auto host = make(name);
        CHECK_FALSE(host->is_managed(0));
        CHECK_FALSE(host->is_managed(kThreshold - 1));
        CHECK(host->is_managed(kThreshold));
        CHECK(host->is_managed(~0ull));
    }
}

TEST_CASE("policy: lru starts at the budget, or at its share if one is set") {
    for (const char* name : kLruForms) {
        CAPTURE(name);
        const auto host = make(name);
        CHECK(host->eviction_start(1000, 0) == 1000);
        CHECK(host->eviction_start(1000, 1000) == 1000);
        CHECK(host->eviction_start(1000, 1001) == 1000);
        CHECK(host->eviction_start(0, 5) == 0);
        CHECK(make(name, 0.5)->eviction_start(1000, 10) == 500);
        CHECK(make(name, 0.0)->eviction_start(1000, 10) == 0);
        CHECK(make(name, 1.0)->eviction_start(1000, 5000) == 1000);
    }
}

TEST_CASE("policy: lms starts at its share of the budget, whatever is allocated") {
    for (const char* name : kLmsForms) {
        CAPTURE(name);
        CHECK(make(name)->eviction_start(1000, 0) == 900);
        CHECK(make(name)->eviction_start(1000, 5000) == 900);
        CHECK(make(name, 0.25)->eviction_start(1000, 10) == 250);
        CHECK(make(name, 0.0)->eviction_start(1000, 10) == 0);
        CHECK(make(name, 1.0)->eviction_start(~0ull, 10) == ~0ull);
    }
}

TEST_CASE("policy: nothing resident, no victim") {
    for (const char* name : kAllForms) {
        CAPTURE(name);
        const auto host = make(name);
        CHECK(host->next_victim({1}, any) == kNoChunk);
        host->added({3, 4096, 0});
        host->used(3);
        CHECK(host->next_victim({1}, any) == kNoChunk);
        host->resident(3);
        CHECK(host->next_victim({1}, any) == 3);
        host->removed(3);
        CHECK(host->next_victim({1}, any) == kNoChunk);
    }
}

TEST_CASE("policy: among chunks of one size, the least recently used goes first") {
    for (const char* name : kAllForms) {
        CAPTURE(name);
        const auto host = make(name);
        add_resident(*host, {64, 64, 64, 64});
        host->used(1);
        host->used(0);
        CHECK(host->next_victim({64}, any) == 2);
        CHECK(host->next_victim({64}, any) == 2);  // asking changes nothing
        CHECK(eviction_order(*host, 64) == Order{2, 3, 1, 0});
        host->resident(1);  // comes in: most recent
        host->resident(0);
        host->used(2);  // not on the GPU
        CHECK(eviction_order(*host, 64) == Order{1, 0});
    }
}

TEST_CASE("policy: ineligible chunks are passed over and keep their place") {
    for (const char* name : kAllForms) {
        CAPTURE(name);
        const auto host = make(name);
        add_resident(*host, {64, 64, 64});
        CHECK(host->next_victim({64}, [](ChunkId chunk) { return chunk == 2; }) == 2);
        CHECK(host->next_victim({64}, [](ChunkId) { return false; }) == kNoChunk);
        CHECK(eviction_order(*host) == Order{0, 1, 2});
    }
}

TEST_CASE("policy: lru does not look at sizes") {
    for (const char* name : kLruForms) {
        CAPTURE(name);
        const auto host = make(name);
        add_resident(*host, {16, 64, 32});
        CHECK(eviction_order(*host, 32) == Order{0, 1, 2});
    }
}

TEST_CASE("policy: lms takes the best fit, then the least recently used") {
    for (const char* name : kLmsForms) {
        CAPTURE(name);
        const auto host = make(name);
        add_resident(*host, {16, 64, 32, 32, 128});
        host->used(2);
        CHECK(host->next_victim({32}, any) == 3);  // of both that fit exactly, the older
        CHECK(host->next_victim({33}, any) == 1);
        CHECK(host->next_victim({100}, any) == 4);
        CHECK(host->next_victim({129}, any) == 0);  // none fits
        CHECK(host->next_victim({32}, [](ChunkId chunk) { return chunk == 0 || chunk == 4; }) == 4);
        CHECK(host->next_victim({32}, [](ChunkId chunk) { return chunk == 0; }) == 0);
        CHECK(eviction_order(*host, 32) == Order{3, 2, 1, 4, 0});
    }
}

TEST_CASE("policy: a chunk's number comes back with another size") {
    for (const char* name : kLmsForms) {
        CAPTURE(name);
        const auto host = make(name);
        add_resident(*host, {16, 64});
        host->removed(0);
        host->added({0, 128, 7});
        host->resident(0);
        CHECK(host->next_victim({100}, any) == 0);
        CHECK(host->next_victim({16}, any) == 1);
    }
}

TEST_CASE("policy: any sequence of events gives what a plain list gives") {
    struct Model {
        std::uint64_t bytes = 0;
        bool exists = false;
        bool resident = false;
        std::uint64_t rank = 0;
    };
    for (const char* name : kAllForms) {
        const bool best_fit = make(name)->name() == std::string("lms");
        for (unsigned seed = 1; seed <= 20; ++seed) {
            CAPTURE(name);
            CAPTURE(seed);
            std::mt19937 random(seed);
            const auto host = make(name);
            std::vector<Model> model(24);
            std::uint64_t rank = 0;
            for (int step = 0; step < 2000; ++step) {
                const ChunkId chunk = random() % model.size();
                Model& m = model[chunk];
                switch (random() % 6) {
                    case 0:
                        if (m.exists) {
                            host->removed(chunk);
                            m = {};
                        } else {
                            m = {.bytes = 1ull << (random() % 4), .exists = true};
                            host->added({chunk, m.bytes, 0});
                        }
                        break;
                    case 1:
                        if (!m.exists || m.resident) break;
                        host->resident(chunk);
                        m.resident = true;
                        m.rank = ++rank;
                        break;
                    case 2:
                    case 3:
                        if (!m.exists) break;
                        host->used(chunk);
                        m.rank = ++rank;
                        break;
                    default: {
                        const std::uint64_t need = 1 + random() % 10;
                        const auto mask = static_cast<std::uint32_t>(random());
                        const auto eligible = [mask](ChunkId c) { return (mask >> c & 1) != 0; };
                        ChunkId expected = kNoChunk;
                        const auto key = [&](ChunkId c) {
                            const bool fits = best_fit && model[c].bytes >= need;
                            return std::tuple(best_fit && !fits, fits ? model[c].bytes : 0, model[c].rank);
                        };
                        for (ChunkId c = 0; c < model.size(); ++c) {
                            if (!model[c].resident || !eligible(c)) continue;
                            if (expected == kNoChunk || key(c) < key(expected)) expected = c;
                        }
                        REQUIRE(host->next_victim({need}, eligible) == expected);
                        if (expected == kNoChunk) break;
                        host->evicted(expected);
                        model[expected].resident = false;
                    }
                }
            }
        }
    }
}

TEST_CASE("policy host: what cannot be used is told in one line, and lru serves") {
    const ::Scratch scratch;
    CHECK(problem_with("lur") == "expected next-use, lru, lms, or the path of a plugin");
    CHECK(problem_with("./nothing.so").find("nothing.so") != std::string::npos);
    CHECK(problem_with("nothing.so").find("./nothing.so: cannot open") != std::string::npos);
    scratch.put("text.so", "not a library");
    CHECK(problem_with(scratch.path("text.so")).find("text.so") != std::string::npos);

    const std::string head = "#include <lms/policy.h>\n#include <stddef.h>\n";
    const std::string get = "const lms_policy* lms_policy_get(uint32_t v) { (void)v; return &table; }\n";
    const std::string none = build(scratch, "none", "int x;\n");
    CHECK(problem_with(none) == none + " exports no lms_policy_get");
    const std::string null =
        build(scratch, "null",
              head + "const lms_policy* lms_policy_get(uint32_t v) { return v == 99 ? (void*)1 : NULL; }");
    CHECK(problem_with(null) == null + " does not speak version 1 of the policy ABI");
    const std::string newer =
        build(scratch, "newer", head + "static const lms_policy table = {sizeof table, 2, \"x\"};" + get);
    CHECK(problem_with(newer) == newer + " has version 2 of the policy ABI, expected 1");
    const std::string small =
        build(scratch, "small", head + "static const lms_policy table = {16, 1, \"x\"};" + get);
    CHECK(problem_with(small) == small + " has a table of 16 bytes, expected " +
                                     std::to_string(offsetof(lms_policy, work)) + " or more");
    const std::string lacks = build(scratch, "lacks",
                                    head +
                                        "static void* c(const lms_policy_config* f) { return (void*)f; } "
                                        "static const lms_policy table = {sizeof table, 1, \"x\", c};" +
                                        get);
    CHECK(problem_with(lacks) == lacks + " lacks destroy");

    lms::log::configure(lms::log::Level::Warn, scratch.path("log"));
    const auto host = Host::create(lacks, {}, kThreshold);
    CHECK(Host::create(lacks, {}, kThreshold)->name() == std::string("lru"));  // of another GPU: told once
    lms::log::configure(lms::log::Level::Warn, "");
    CHECK(host->name() == std::string("lru"));
    CHECK(scratch.get("log") == "lms: LMS_POLICY=" + lacks + ": " + lacks + " lacks destroy; using lru\n");
}

// It writes a file when it is loaded, whatever comes of it.
TEST_CASE("policy host: a plugin that others may have written is not loaded") {
    const ::Scratch scratch;
    const std::string mark = scratch.path("loaded");
    REQUIRE(mkdir(scratch.path("folder").c_str(), 0700) == 0);
    const std::string plugin =
        build(scratch, "folder/plugin",
              "#include <fcntl.h>\n__attribute__((constructor)) static void start(void) { creat(\"" + mark +
                  "\", 0600); }\n");
    const auto problem_in = [&](mode_t folder, mode_t file, const std::string& path) {
        REQUIRE(chmod(scratch.path("folder").c_str(), folder) == 0);
        REQUIRE(chmod(plugin.c_str(), file) == 0);
        const std::string problem = problem_with(path);
        const bool loaded = std::filesystem::remove(mark);
        CHECK(loaded == problem.ends_with("lms_policy_get"));
        return problem;
    };
    const std::string link = scratch.path("link.so");
    REQUIRE(symlink(plugin.c_str(), link.c_str()) == 0);
    for (const std::string& path : {plugin, link}) {
        CHECK(problem_in(0700, 0777, path) == path + ": is world-writable (mode 0777), expected 0775");
        CHECK(problem_in(0777, 0755, path) ==
              path + ": is in a world-writable folder (mode 0777), expected 0775");
        CHECK(problem_in(01777, 0755, path) == path + " exports no lms_policy_get");
        CHECK(problem_in(0775, 0775, path) == path + " exports no lms_policy_get");
    }

    constexpr uid_t kSomebody = 4711;
    if (getuid() == 0) REQUIRE(chown(plugin.c_str(), kSomebody, kSomebody) == 0);
    const uid_t owner = getuid() == 0 ? kSomebody : getuid();
    CHECK(lms::util::distrust(plugin, owner) == "");
    CHECK(lms::util::distrust(plugin, owner + 1) == "belongs to user " + std::to_string(owner) +
                                                        ", expected root or user " +
                                                        std::to_string(owner + 1));
    CHECK(lms::util::distrust(std::filesystem::canonical("/bin/sh"), owner) == "");  // root's
}

TEST_CASE("policy host: a plugin that answers nonsense harms nobody") {
    const ::Scratch scratch;
    const std::string path = build(scratch, "rogue", R"(
        #include <lms/policy.h>
        static int state;
        static void* create(const lms_policy_config* c) { (void)c; return &state; }
        static void destroy(void* s) { (void)s; }
        static int managed(void* s, uint64_t b) { (void)s; return b != 0; }
        static uint64_t start(void* s, const lms_policy_pressure* p) { (void)s; (void)p; return UINT64_MAX; }
        static uint32_t victim(void* s, const lms_policy_request* r) {
            (void)s;
            return r->eligible(r->context, 1000000) ? 0 : (uint32_t)r->need_bytes;
        }
        static const lms_policy table = {sizeof table, 1, "rogue", create, destroy, managed, start,
                                         0, 0, 0, 0, 0, victim};
        const lms_policy* lms_policy_get(uint32_t v) { (void)v; return &table; }
    )");
    const auto host = make(path);
    host->added({0, 64, 0});  // events it does not want
    host->added({1, 64, 0});
    host->used(0);
    host->resident(0);
    host->evicted(0);
    host->removed(0);
    CHECK(host->eviction_start(1000, 5000) == 1000);
    std::set<ChunkId> asked;
    const auto only_one = [&](ChunkId chunk) {
        asked.insert(chunk);
        return chunk == 1;
    };
    lms::log::configure(lms::log::Level::Warn, scratch.path("log"));
    CHECK(host->next_victim({1}, only_one) == 1);
    CHECK(host->next_victim({0}, only_one) == kNoChunk);        // may not be evicted
    CHECK(host->next_victim({5000000}, only_one) == kNoChunk);  // does not exist
    lms::log::configure(lms::log::Level::Warn, "");
    CHECK(asked == std::set<ChunkId>{0, 1});
    CHECK(scratch.get("log") ==
          "lms: policy rogue chose chunk 0, which may not be evicted; the shim evicts another\n");
}

TEST_CASE("policy host: examples/lfu.c builds, loads and evicts the least often used") {
    std::ifstream file("examples/lfu.c");
    REQUIRE(file);
    const std::string source{std::istreambuf_iterator<char>(file), {}};

    const ::Scratch scratch;
    const auto host = make(build(scratch, "lfu", source));
    CHECK_FALSE(host->is_managed(kThreshold - 1));
    CHECK(host->is_managed(kThreshold));
    CHECK(host->eviction_start(1000, 5000) == 1000);
    add_resident(*host, {64, 64, 64});
    for (const ChunkId chunk : {0, 0, 0, 1, 2, 2}) host->used(chunk);
    CHECK(host->next_victim({64}, [](ChunkId chunk) { return chunk != 1; }) == 2);
    CHECK(eviction_order(*host) == Order{1, 2, 0});
    host->resident(0);
    host->removed(0);
    CHECK(host->next_victim({64}, any) == kNoChunk);
}

TEST_CASE("policy host: a plugin built against the first header of version 1 works") {
    std::ifstream file("tests/unit/policy_v1/plugin.c");
    REQUIRE(file);
    const ::Scratch scratch;
    const std::string plugin =
        build(scratch, "oldest", {std::istreambuf_iterator<char>(file), {}}, "tests/unit/policy_v1");
    const auto host = make(plugin);
    CHECK_FALSE(host->is_managed(kThreshold - 1));
    CHECK(host->is_managed(kThreshold));
    CHECK(host->eviction_start(1000, 500) == 1000);
    CHECK(host->eviction_start(1000, 2000) == 500);
    add_resident(*host, {64, 64, 64});
    for (const ChunkId chunk : {0, 0, 2}) host->used(chunk);
    host->work(Order{1, 2}, nullptr);
    Order out(4);
    CHECK(host->upcoming(out) == 0);
    CHECK(host->next_victim({64, lms::engine::Purpose::Wait}, [](ChunkId chunk) { return chunk != 0; }) == 1);
    host->evicted(0);
    host->resident(0);
    CHECK(eviction_order(*host) == Order{1, 2, 0});
    CHECK(problem_with(plugin + ",depth=3") == "oldest takes no key \"depth\", nor any other");
}

TEST_CASE("policy host: options are given to the policy that takes them") {
    CHECK(problem_with("lru,fast=1") == "lru takes no key \"fast\", nor any other");
    CHECK(problem_with("next-use,") == "next-use takes no key \"\", nor any other");
    const ::Scratch scratch;
    // Its start of eviction is what its options say, in their order.
    const std::string plugin =
        build(scratch, "digits",
              "#include <lms/policy.h>\n#include <stdlib.h>\n#include <string.h>\n"
              "static uint64_t start;\n"
              "static void* create(const lms_policy_config* c) {\n"
              "  start = 0;\n"
              "  for (uint64_t i = 0; i < c->option_count; ++i) {\n"
              "    if (!*c->options[i].value) return NULL;\n"
              "    start = start * 10 + (*c->options[i].key == 'a' ? 1 : 5);\n"
              "    start = start * 10 + strtoull(c->options[i].value, NULL, 10);\n"
              "  }\n"
              "  return &start;\n"
              "}\n"
              "static void destroy(void* s) { (void)s; }\n"
              "static int managed(void* s, uint64_t b) { (void)s; return b > 0; }\n"
              "static uint64_t begin(void* s, const lms_policy_pressure* p) "
              "{ (void)p; return *(uint64_t*)s; }\n"
              "static uint32_t victim(void* s, const lms_policy_request* r) "
              "{ (void)s; (void)r; return LMS_NO_CHUNK; }\n"
              "static const char* const keys[] = {\"a\", \"b\", NULL};\n"
              "static const lms_policy table = {.size = sizeof table, .abi_version = 1,"
              ".name = \"digits\", .create = create, .destroy = destroy,"
              ".is_managed = managed, .eviction_start = begin, .next_victim = victim,"
              ".keys = keys};\n"
              "const lms_policy* lms_policy_get(uint32_t v) { return v == 1 ? &table : NULL; }\n");
    const auto start = [&](const std::string& options) {
        return Host::create(plugin + options, {}, kThreshold)->eviction_start(100000, 0);
    };
    CHECK(start("") == 0);
    CHECK(start(",a=7") == 17);
    CHECK(start(",b=2,a=3") == 5213);
    CHECK(problem_with(plugin + ",a=1,c=2") == "digits takes no key \"c\", but a, b");
    lms::log::configure(lms::log::Level::Off, "");
    CHECK(Host::create(plugin + ",a", {}, kThreshold)->name() == std::string("lru"));
    lms::log::configure(lms::log::Level::Warn, "");
}

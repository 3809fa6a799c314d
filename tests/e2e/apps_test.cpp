// The programs of tests/apps: the same output with the shim on a GPU of half and a quarter of what they need
// as without it on one with room.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/e2e/apps.h"

using namespace e2e;

namespace {

const std::string kHostMapping[] = {"1", "0"};

// Beside the one that all else here runs with.
const std::string kPolicies[] = {"lru", "lms", support::build_dir() + "/random/reckless.so"};

// Those whose memory the shim leaves alone, or that use next to none.
const std::string kUnmanaged[] = {"arrays", "errors", "graph_nodes", "launches", "runtime_calls", "textures"};

// Those that have cases of their own.
const std::string kOwnCases[] = {"caching",     "divided",     "hidden_pointers", "host_lists", "ipc",
                                 "linked_list", "nvtx_ranges", "patterns",        "weights"};

bool says_once(const Run& run, const std::string& beginning) {
    const std::size_t first = run.err.find(beginning);
    return first != std::string::npos && run.err.rfind(beginning) == first;
}

void check_at(const App& app, double share, const Environment& more, const std::string& reference) {
    CAPTURE(share);
    Environment environment = app.environment;
    std::string settings;
    for (const auto& [name, value] : more) {
        environment[name] = value;
        settings += name + "=" + value + " ";
    }
    CAPTURE(settings);
    const Run run = run_shimmed({app.name, std::to_string(app.mib)}, memory_of(app, share), environment);
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == reference);
    CHECK(run.stats.at("evictions") > 0);
    // One calls the runtime from host functions, to be refused.
    if (app.name != "callbacks") CHECK(run.violations == 0);
}

void check_app(const App& app) {
    CAPTURE(app.name);
    const std::string reference = reference_of(app);
    for (const std::string& host_mapping : kHostMapping) {
        for (const double share : {0.5, 0.25})
            check_at(app, share, {{"SIMCUDA_HOST_VMM", host_mapping}}, reference);
    }
    // What moves beside kernels differs most between these.
    check_at(app, 0.25, {{"LMS_SAFETY", "args"}, {"SIMCUDA_HOST_VMM", "0"}}, reference);
    check_at(app, 0.25, {{"LMS_SAFETY", "strict"}}, reference);
    for (const std::string& policy : kPolicies) check_at(app, 0.25, {{"LMS_POLICY", policy}}, reference);
}

}  // namespace

TEST_CASE("apps: same output at half and a quarter of the memory") {
    for (const App& app : apps()) check_app(app);
}

TEST_CASE("apps: none is left out") {
    std::set<std::string> tested(std::begin(kUnmanaged), std::end(kUnmanaged));
    tested.insert(std::begin(kOwnCases), std::end(kOwnCases));
    for (const App& app : apps()) tested.insert(app.name);
    for (const auto& file : std::filesystem::directory_iterator(support::build_dir() + "/apps")) {
        const std::string name = file.path().filename();
        CHECK_MESSAGE(tested.count(name) == 1, name, " is not in apps(), kUnmanaged or kOwnCases");
    }
}

TEST_CASE("apps: those whose memory does not move run as without the shim") {
    for (const std::string& name : kUnmanaged) {
        CAPTURE(name);
        const Run run = run_shimmed({name, "4"}, "16M");
        CHECK_MESSAGE(run.status == 0, run.err);
        CHECK(run.out == run_bare({name, "4"}, "16M").out);
    }
}

TEST_CASE("apps: data does move" * doctest::test_suite("apps-move")) {
    for (const std::string& host_mapping : kHostMapping) {
        const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"SIMCUDA_HOST_VMM", host_mapping}});
        CHECK(run.stats.at("evictions") > 100);
        CHECK(run.stats.at("bytes_in") > (16u << 20));
        CHECK(run.stats.at("bytes_out") > (16u << 20));
        CHECK(run.stats.at("peak_resident_bytes") <= (4u << 20));
    }
}

TEST_CASE("apps: while everything fits nothing moves") {
    const Run run = run_shimmed({"vector_add", "16"}, "64M");
    CHECK(run.status == 0);
    CHECK(run.stats.at("evictions") == 0);
    CHECK(run.stats.at("fills") == 0);
    CHECK(run.err.find("lms:") == std::string::npos);
}

TEST_CASE("apps: a small GPU without the shim is out of memory") {
    const support::Result result = run_bare({"vector_add", "16"}, "8M");
    CHECK(result.status == 1);
    CHECK(result.err.find("cudaErrorMemoryAllocation") != std::string::npos);
}

TEST_CASE("apps: lists built on the device are followed where memory stays addressable") {
    const support::Result reference = run_bare({"linked_list", "16"}, "64M");
    REQUIRE(reference.status == 0);
    for (const std::string memory : {"8M", "4M"}) {
        const Run run = run_shimmed({"linked_list", "16"}, memory, {{"SIMCUDA_HOST_VMM", "1"}});
        CHECK_MESSAGE(run.status == 0, run.err);
        CHECK(run.out == reference.out);
    }
    // Where it does not, all the nodes would have to be on the GPU at once: the upload of the table names
    // them.
    const Run run = run_shimmed({"linked_list", "16"}, "4M", {{"SIMCUDA_HOST_VMM", "0"}});
    CHECK(run.status == 1);
    CHECK(run.err.find("cudaErrorMemoryAllocation") != std::string::npos);
}

TEST_CASE("apps: beyond GPU and host limit together, out of memory as without the shim") {
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_HOST_LIMIT", "4M"}});
    CHECK(run.status == 1);
    CHECK(run.err.find("cudaErrorMemoryAllocation") != std::string::npos);
    CHECK(says_once(run, "lms: out of memory: no room for 1M beside 7M; "));
    CHECK(run.err.find(" and host memory 4M: raise LMS_HOST_LIMIT\n") != std::string::npos);
}

TEST_CASE("apps: where the driver pins no more host memory, out of memory, in one line") {
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"SIMCUDA_HOST_MEMORY", "2M"}});
    CHECK(run.status == 1);
    CHECK(says_once(run, "lms: out of memory: 1M find no room on the GPU, and beyond "));
}

TEST_CASE("apps: a launch larger than the GPU is told of") {
    const Run run = run_shimmed({"vector_add", "1"}, "2M");
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.stats.at("in_place_launches") > 0);
    CHECK(says_once(run, "lms: a launch finds no room on the GPU for "));
    const Run none = run_shimmed({"vector_add", "1"}, "2M", {{"SIMCUDA_HOST_VMM", "0"}});
    CHECK(none.status == 1);
    CHECK(says_once(none, "lms: out of memory: a launch names 3M; this GPU has room for "));
}

TEST_CASE("apps: a GPU of which nothing is left is told of, and the program runs") {
    const Run run = run_shimmed({"vector_add", "1"}, "16M", {{"LMS_RESERVE", "1G"}});
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(says_once(run, "lms: GPU 0: LMS_RESERVE, LMS_LIMIT and other programs leave nothing of its 16M"));
}

TEST_CASE("apps: a GPU that the shim cannot make larger is told of, and the program runs as without it") {
    const Run run =
        run_shimmed({"vector_add", "1"}, "16M", {{"SIMCUDA_FAIL", "cuMemGetAllocationGranularity:1"}});
    CHECK(run.status == 0);
    CHECK(run.err ==
          "lms: GPU 0 keeps its size: its driver refused virtual memory management "
          "(CUDA_ERROR_OUT_OF_MEMORY); see `lms doctor`\n");
}

TEST_CASE("apps: the first eviction is announced in one line") {
    const Run run = run_shimmed({"vector_add", "16"}, "4M");
    CHECK(says_once(run, "lms: GPU 0 is full: "));
    CHECK(std::ranges::count(run.err, '\n') == 1);
    CHECK(says_once(run_shimmed({"vector_add", "16"}, "64M", {{"LMS_FRAC", "0"}}),
                    "lms: GPU 0 is full by LMS_FRAC or the policy: "));
    CHECK(run_shimmed({"vector_add", "16"}, "4M", {{"LMS_LOG", "off"}}).err.find("lms:") ==
          std::string::npos);
}

TEST_CASE("apps: at start LMS_LOG=info says how much memory there is, and how much is free") {
    const Run run = run_shimmed({"vector_add", "1"}, "16M", {{"LMS_LOG", "info"}, {"LMS_HOST_LIMIT", "8M"}});
    CHECK(says_once(run, "lms: GPU 0: 16M of memory, "));
    CHECK(says_once(run, " of that and 8M of host memory"));
}

TEST_CASE("apps: a bad setting gets one line and its default") {
    const Run run = run_shimmed({"vector_add", "16"}, "64M", {{"LMS_FRAC", "2"}});
    CHECK(run.status == 0);
    CHECK(run.err.find("lms: LMS_FRAC=2: expected a number from 0 to 1") != std::string::npos);
}

// What other processes are given has to stay where it is: below the threshold.
TEST_CASE("apps: two processes share memory beside the shim") {
    const Run run = run_shimmed({"ipc"}, "16M", {{"LMS_THRESHOLD", "2M"}});
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == "ok\n");
}

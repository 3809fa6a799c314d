// The programs of tests/apps: the same output with the shim on a GPU of half and a quarter of what they need
// as without it on one with room.
#include <doctest/doctest.h>

#include "tests/e2e/programs.h"

using namespace e2e;

namespace {

const std::string kHostMapping[] = {"1", "0"};

// Runs a program that works through 16 MiB.
void check_app(const std::string& name, const std::string& host_mapping) {
    CAPTURE(name);
    CAPTURE(host_mapping);
    const support::Result reference = run_bare({name, "16"}, "64M");
    REQUIRE_MESSAGE(reference.status == 0, reference.err);
    for (const std::string memory : {"8M", "4M"}) {
        CAPTURE(memory);
        const Run run = run_shimmed({name, "16"}, memory, {{"SIMCUDA_HOST_VMM", host_mapping}});
        CHECK_MESSAGE(run.status == 0, run.err);
        CHECK(run.out == reference.out);
        CHECK(run.stats.at("allocations") > 0);
    }
}

}  // namespace

TEST_CASE("apps: same output at half and a quarter of the memory") {
    for (const std::string& host_mapping : kHostMapping) {
        for (const char* name : {"callbacks", "copies_2d", "malloc_async", "per_thread", "reduce", "sgemm",
                                 "streams", "threads", "vector_add"}) {
            check_app(name, host_mapping);
        }
    }
}

TEST_CASE("apps: data does move") {
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
    // Where it does not, all the nodes would have to be on the GPU at once: the upload of the table names them.
    const Run run = run_shimmed({"linked_list", "16"}, "4M", {{"SIMCUDA_HOST_VMM", "0"}});
    CHECK(run.status == 1);
    CHECK(run.err.find("cudaErrorMemoryAllocation") != std::string::npos);
}

TEST_CASE("apps: beyond GPU and host limit together, out of memory as without the shim") {
    const Run run = run_shimmed({"vector_add", "16"}, "4M", {{"LMS_HOST_LIMIT", "4M"}});
    CHECK(run.status == 1);
    CHECK(run.err.find("cudaErrorMemoryAllocation") != std::string::npos);
}

TEST_CASE("apps: the first eviction is announced in one line") {
    const Run run = run_shimmed({"vector_add", "16"}, "4M");
    const auto first = run.err.find("lms: GPU memory is full");
    REQUIRE(first != std::string::npos);
    CHECK(run.err.find("lms:", first + 1) == std::string::npos);
    CHECK(run_shimmed({"vector_add", "16"}, "4M", {{"LMS_LOG", "off"}}).err.find("lms:") ==
          std::string::npos);
}

TEST_CASE("apps: a bad setting gets one line and its default") {
    const Run run = run_shimmed({"vector_add", "16"}, "64M", {{"LMS_FRAC", "2"}});
    CHECK(run.status == 0);
    CHECK(run.err.find("lms: LMS_FRAC=2: expected a number from 0 to 1") != std::string::npos);
}

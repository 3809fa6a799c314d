// Faults of other shims in how they stand between a program and the driver, each kept out by a test whose
// name begins with "peers"; some are beside what they concern (calls_test, opening_test, libraries_test), and
// those in what is done with memory are in tests/entry.
#include <doctest/doctest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

using namespace drivers;

namespace {

bool is_hooked(std::string_view symbol) {
    for (const table::Row& row : table::kRows) {
        if (row.symbol == symbol) return row.action != table::Action::PASS;
    }
    FAIL("no such row: " << std::string(symbol));
    return false;
}

// The exported name of what a program gets for a query.
std::string given(const char* base, int version, std::uint64_t flags) {
    void* function = nullptr;
    const auto lookup = reinterpret_cast<GetProcAddressV2>(shim_function("cuGetProcAddress_v2"));
    if (lookup(base, &function, version, flags, nullptr) != kSuccess || function == nullptr) return "";
    for (const table::Row& row : table::kRows) {
        if (function == expected(row)) return std::string(row.symbol);
    }
    return "unknown";
}

}  // namespace

PROBE(version_and_flags_are_honoured) {
    // Another signature under the same name.
    CHECK(given("cuCtxSynchronize", 12090, kDefault) == "cuCtxSynchronize");
    CHECK(given("cuCtxSynchronize", 13000, kDefault) == "cuCtxSynchronize_v2");
    CHECK(given("cuCtxGetDevice", 2000, kDefault) == "cuCtxGetDevice");
    CHECK(given("cuCtxGetDevice", 13000, kDefault) == "cuCtxGetDevice_v2");
    CHECK(given("cuMemAlloc", 2000, kDefault) == "cuMemAlloc");
    CHECK(given("cuMemAlloc", 3020, kDefault) == "cuMemAlloc_v2");
    CHECK(given("cuStreamGetCaptureInfo", 12029, kPerThread) == "cuStreamGetCaptureInfo_v2_ptsz");
    CHECK(given("cuStreamGetCaptureInfo", 12030, kLegacy) == "cuStreamGetCaptureInfo_v3");
    // Another default stream.
    CHECK(given("cuLaunchKernel", 13000, kLegacy) == "cuLaunchKernel");
    CHECK(given("cuLaunchKernel", 13000, kPerThread) == "cuLaunchKernel_ptsz");
    CHECK(given("cuMemcpyHtoD", 13000, kPerThread) == "cuMemcpyHtoD_v2_ptds");
    CHECK(given("cuMemcpyHtoDAsync", 13000, kPerThread) == "cuMemcpyHtoDAsync_v2_ptsz");
    // No per-thread form as old as that, and no other in its place.
    CHECK(given("cuMemcpyHtoD", 6050, kPerThread) == "");
    CHECK(given("cuLaunchKernel", 3020, kDefault) == "");
}

TEST_CASE("peers: cuGetProcAddress ignores version and flags") {
    probe::run_probe("version_and_flags_are_honoured", probe::preloaded()).check();
}

TEST_CASE("peers: a hook stands for the legacy stream but not for the per-thread one") {
    // Older ABIs of a base name come and go with their own types; the newest ABI of each stream mode must
    // agree.
    struct Newest {
        const table::Row* legacy = nullptr;
        const table::Row* per_thread = nullptr;
    };
    std::map<std::string_view, Newest> families;
    for (const table::Row& row : table::kRows) {
        if (row.stream == table::Stream::NONE) continue;
        Newest& family = families[row.base];
        const table::Row*& newest = table::is_per_thread(row) ? family.per_thread : family.legacy;
        if (newest == nullptr || row.introduced >= newest->introduced) newest = &row;
    }
    for (const auto& [base_name, family] : families) {
        const std::string_view base = base_name;
        CAPTURE(base);
        REQUIRE(family.legacy != nullptr);
        REQUIRE(family.per_thread != nullptr);
        CHECK(family.legacy->action == family.per_thread->action);
    }
}

TEST_CASE("peers: an allocation is hooked and its free is not") {
    CHECK(is_hooked("cuMemAlloc_v2") == is_hooked("cuMemFree_v2"));
    CHECK(is_hooked("cuMemAllocPitch_v2") == is_hooked("cuMemFree_v2"));
    CHECK(is_hooked("cuMemAllocAsync") == is_hooked("cuMemFreeAsync"));
    CHECK(is_hooked("cuMemAllocAsync_ptsz") == is_hooked("cuMemFreeAsync_ptsz"));
}

TEST_CASE("peers: stream-ordered and pitched allocation, LaunchKernelEx, graphs and memset are forgotten") {
    for (const char* symbol : {"cuMemAllocAsync", "cuMemFreeAsync", "cuMemAllocPitch_v2", "cuLaunchKernelEx",
                               "cuLaunchCooperativeKernel", "cuGraphLaunch", "cuGraphInstantiateWithFlags",
                               "cuMemsetD8_v2", "cuMemsetD32Async", "cuMemcpy2DAsync_v2"}) {
        CAPTURE(symbol);
        CHECK(is_hooked(symbol));
    }
}

TEST_CASE("peers: a misspelt hook is never called") {
    // A function that looks like a driver's and is none of the table's. (A hooked row without a function, and
    // a passed row with one, do not link.)
    std::set<std::string_view> symbols;
    for (const table::Row& row : table::kRows) symbols.insert(row.symbol);
    const probe::Result result = probe::run({"nm", "-C", probe::built("liblmsshim.so")}, {});
    REQUIRE(result.status == 0);
    static const std::regex pattern(R"([0-9a-f]+ [tT] (cu[A-Z]\w*)(\(.*)?)");
    std::istringstream lines(result.out);
    std::size_t seen = 0;
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        if (!std::regex_match(line, match, pattern)) continue;
        ++seen;
        CAPTURE(line);
        CHECK(symbols.contains(match[1].str()));
        CHECK(!match[2].matched);  // C linkage
    }
    CHECK(seen == symbols.size());
}

// cuGetProcAddress through the shim: every name in every version and mode, names that are nearly right, and
// random queries, each against what the driver itself answers.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

using namespace drivers;

namespace {

struct Answer {
    int result = -1;
    void* function = nullptr;
    int status = -1;

    bool operator==(const Answer&) const = default;
};

Answer ask(void* get_proc_address_v2, const char* symbol, int version, std::uint64_t flags) {
    Answer answer;
    answer.function = &answer;  // must be overwritten, also on failure
    answer.result = reinterpret_cast<GetProcAddressV2>(get_proc_address_v2)(symbol, &answer.function, version,
                                                                            flags, &answer.status);
    return answer;
}

const table::Row& row_named(std::string_view symbol) {
    for (const table::Row& row : table::kRows) {
        if (row.symbol == symbol) return row;
    }
    std::abort();
}

void* shim_lookup() {
    return shim_function("cuGetProcAddress_v2");
}
void* driver_lookup() {
    return address(row_named("cuGetProcAddress_v2")).exported;
}

// The driver's answer with the shim's function in place of every hooked one.
Answer expected_answer(const char* symbol, int version, std::uint64_t flags) {
    Answer answer = ask(driver_lookup(), symbol, version, flags);
    for (const table::Row& row : table::kRows) {
        const fake::Address& known = address(row);
        if (answer.function == nullptr || row.action == table::Action::PASS) continue;
        if (answer.function == known.exported || answer.function == known.internal) {
            answer.function = shim_function(row.symbol);
        }
    }
    return answer;
}

void check_query(const char* symbol, int version, std::uint64_t flags) {
    CAPTURE(symbol);
    CAPTURE(version);
    CAPTURE(flags);
    const Answer wanted = expected_answer(symbol, version, flags);
    const int queries = record().queries;
    const Answer got = ask(shim_lookup(), symbol, version, flags);
    CHECK(got.result == wanted.result);
    CHECK(got.function == wanted.function);
    CHECK(got.status == wanted.status);
    CHECK(record().queries > queries);
    CHECK(record().had_status == (record().queries == queries + 1));
}

std::vector<int> interesting_versions(const table::Row& row) {
    std::vector<int> versions{row.introduced - 1, row.introduced, row.introduced + 1, 0, 13000, 99999};
    for (const table::Row& other : table::kRows) {
        if (other.base == row.base) versions.push_back(other.introduced);
    }
    return versions;
}

}  // namespace

PROBE(every_name_version_and_mode) {
    REQUIRE(shim_lookup() != driver_lookup());
    for (const table::Row& row : table::kRows) {
        for (const int version : interesting_versions(row)) {
            for (const std::uint64_t flags : {kDefault, kLegacy, kPerThread}) {
                check_query(std::string(row.base).c_str(), version, flags);
                check_query(std::string(row.symbol).c_str(), version, flags);
            }
        }
    }
}

PROBE(each_row_is_reached_by_its_own_version) {
    for (const table::Row& row : table::kRows) {
        CAPTURE(row.symbol);
        const std::uint64_t flags = table::is_per_thread(row) ? kPerThread : kLegacy;
        const Answer answer = ask(shim_lookup(), std::string(row.base).c_str(), row.introduced, flags);
        CHECK(answer.result == kSuccess);
        CHECK(answer.status == kSymbolFound);
        CHECK(answer.function == expected(row));
    }
}

PROBE(names_that_are_nearly_right) {
    for (const table::Row& row : table::kRows) {
        const std::string base(row.base);
        for (const std::string& name :
             {base + "_", base + "_v9", base + "_ptsz", base + "x", base.substr(0, base.size() - 1),
              base.substr(1), " " + base, base + " ", "CU" + base.substr(2), base + "\n"}) {
            check_query(name.c_str(), 13000, kDefault);
        }
    }
}

PROBE(the_empty_name_fails_cleanly) {
    const Answer answer = ask(shim_lookup(), "", 13000, kDefault);
    CHECK(answer == Answer{kSuccess, nullptr, kSymbolUnknown});
    CHECK(ask(shim_lookup(), nullptr, 13000, kDefault).result == kInvalidValue);
    CHECK(reinterpret_cast<GetProcAddressV2>(shim_lookup())("cuInit", nullptr, 13000, kDefault, nullptr) ==
          kInvalidValue);
}

PROBE(a_null_status_is_accepted_and_arrives) {
    void* function = nullptr;
    const auto lookup = reinterpret_cast<GetProcAddressV2>(shim_lookup());
    CHECK(lookup("cuGetProcAddress", &function, 12000, kDefault, nullptr) == kSuccess);
    CHECK(function == shim_lookup());
    CHECK(record().had_status == false);
    CHECK(std::string(record().symbol) == "cuGetProcAddress");
    CHECK(lookup("cuNothing", &function, 12000, kDefault, nullptr) == kSuccess);
    CHECK(function == nullptr);
}

PROBE(random_queries) {
    std::mt19937 random(20250611);
    const auto pick = [&random](int below) {
        return static_cast<int>(random() % static_cast<unsigned>(below));
    };
    for (int i = 0; i < 20000; ++i) {
        std::string name(table::kRows[pick(std::size(table::kRows))].base);
        for (int edits = pick(3); edits > 0 && !name.empty(); --edits) {
            const auto at = static_cast<std::size_t>(pick(static_cast<int>(name.size())));
            switch (pick(4)) {
                case 0:
                    name[at] = static_cast<char>(1 + pick(255));
                    break;
                case 1:
                    name.erase(at, 1);
                    break;
                case 2:
                    name.insert(at, 1, static_cast<char>('A' + pick(58)));
                    break;
                default:
                    name += table::kRows[pick(std::size(table::kRows))].symbol;
                    break;
            }
        }
        const int version = pick(10) == 0 ? static_cast<int>(random()) : 2000 + 10 * pick(1200);
        const std::uint64_t flags = pick(20) == 0 ? random() : static_cast<std::uint64_t>(pick(4));
        check_query(name.c_str(), version, flags);
    }
}

PROBE(the_first_version_of_the_call_substitutes_too) {
    const auto lookup = reinterpret_cast<GetProcAddress>(shim_function("cuGetProcAddress"));
    void* function = nullptr;
    CHECK(lookup("cuGetProcAddress", &function, 11030, kDefault) == kSuccess);
    CHECK(function == shim_function("cuGetProcAddress"));
    CHECK(lookup("cuMemAllocPitch", &function, 3020, kDefault) == kSuccess);
    CHECK(function == expected(row_named("cuMemAllocPitch_v2")));
    void* const before = function;
    CHECK(lookup("cuNothing", &function, 11030, kDefault) == kNotFound);
    CHECK(function == before);
}

// No row of the table, and no newer one either.
PROBE(old_and_undocumented_names_go_to_the_driver) {
    void* const found = dlsym(libcuda(), "cuMemGetAttribute");
    REQUIRE(found != nullptr);
    CHECK(reinterpret_cast<int (*)()>(found)() >= fake::kAnswerBase);
    CHECK(dlsym(RTLD_DEFAULT, "cuMemGetAttribute") == nullptr);
}

// A driver newer than the table: a function that the table does not know, and a new ABI of a hooked one.
PROBE(newer_entry_points_are_called_by_trampolines) {
    void* const future = dlsym(RTLD_NEXT, "cuFutureCall");
    CHECK(future == nullptr);  // only the driver has it
    const Answer call = ask(shim_lookup(), "cuFutureCall", 14000, kDefault);
    CHECK(call.result == kSuccess);
    CHECK(call.function != ask(driver_lookup(), "cuFutureCall", 14000, kDefault).function);
    for (int i = 0; i < 2; ++i) CHECK(reinterpret_cast<int (*)()>(call.function)() >= fake::kAnswerBase);
    CHECK(ask(shim_lookup(), "cuFutureCall", 14000, kDefault) == call);
    CHECK(ask(shim_lookup(), "cuFutureCall", 13000, kDefault).status == kVersionTooOld);

    const Answer newer_abi = ask(shim_lookup(), "cuGetProcAddress", 14000, kDefault);
    CHECK(newer_abi.result == kSuccess);
    CHECK(newer_abi.function != ask(driver_lookup(), "cuGetProcAddress", 14000, kDefault).function);
    CHECK(newer_abi.function != shim_lookup());
    CHECK(ask(shim_lookup(), "cuGetProcAddress", 13000, kDefault).function == shim_lookup());
}

// What is missing in the driver is missing in the shim.
PROBE(an_old_driver_lacks_what_it_lacks) {
    void* const found = dlsym(libcuda(), "cuGetProcAddress");
    REQUIRE(found != nullptr);
    const auto lookup = reinterpret_cast<GetProcAddress>(found);
    CHECK(dlsym(libcuda(), "cuGetProcAddress_v2") == nullptr);
    void* function = &function;
    CHECK(lookup("cuGetProcAddress", &function, 11030, kDefault) == kSuccess);
    CHECK(function == shim_function("cuGetProcAddress"));
    for (const table::Row& row : table::kRows) {
        CAPTURE(row.symbol);
        const std::string symbol(row.symbol);
        const bool there = address(row).exported != nullptr;
        CHECK(there == (row.introduced <= 11040));
        CHECK(dlsym(libcuda(), symbol.c_str()) == (there ? expected(row) : nullptr));
        const std::uint64_t flags = table::is_per_thread(row) ? kPerThread : kLegacy;
        if (!there) continue;
        CHECK(lookup(std::string(row.base).c_str(), &function, row.introduced, flags) == kSuccess);
        CHECK(function == expected(row));
    }
    // A call that a program is linked to answers rather than jumping nowhere.
    const auto v2 = reinterpret_cast<GetProcAddressV2>(shim_lookup());
    int status = -1;
    CHECK(v2("cuInit", &function, 12000, kDefault, &status) == kNotFound);
    CHECK(function == nullptr);
    CHECK(status == kSymbolUnknown);
}

TEST_CASE(
    "lookups: cuGetProcAddress gives every name in every version and mode what the driver gives, hooks "
    "swapped in") {
    probe::run_probe("every_name_version_and_mode", probe::preloaded()).check();
}

TEST_CASE("lookups: every row is found by its base name, version and mode") {
    probe::run_probe("each_row_is_reached_by_its_own_version", probe::preloaded()).check();
}

TEST_CASE("lookups: a driver whose cuGetProcAddress has pointers of its own gets the same hooks") {
    const auto environment = probe::with(probe::preloaded(), {{fake::kProcAddressKnob, "internal"}});
    probe::run_probe("every_name_version_and_mode", environment).check();
}

TEST_CASE("lookups: names that are nearly right are the driver's to refuse") {
    probe::run_probe("names_that_are_nearly_right", probe::preloaded()).check();
}

TEST_CASE("lookups: random queries get the driver's answer") {
    probe::run_probe("random_queries", probe::preloaded()).check();
    const auto environment = probe::with(probe::preloaded(), {{fake::kProcAddressKnob, "internal"}});
    probe::run_probe("random_queries", environment).check();
}

TEST_CASE("lookups: cuGetProcAddress accepts the empty name, as libcudart asks it, and null arguments") {
    probe::run_probe("the_empty_name_fails_cleanly", probe::preloaded()).check();
    probe::run_probe("a_null_status_is_accepted_and_arrives", probe::preloaded()).check();
}

TEST_CASE("lookups: the first version of cuGetProcAddress substitutes too") {
    probe::run_probe("the_first_version_of_the_call_substitutes_too", probe::preloaded()).check();
}

TEST_CASE("lookups: an entry point newer than the table is a trampoline, and named once it is called") {
    for (const char* pointers : {"exported", "internal"}) {
        const auto environment =
            probe::with(probe::preloaded("new_driver"), {{fake::kProcAddressKnob, pointers}});
        const probe::Result result =
            probe::run_probe("newer_entry_points_are_called_by_trampolines", environment);
        INFO(result.out);
        CHECK(result.status == 0);
        CHECK(result.err ==
              "lms: cuFutureCall of CUDA 14.0 is not known to this shim: its work may reach any memory, so "
              "nothing moves until it is over\n");
    }
}

TEST_CASE("lookups: what NVIDIA's drivers export undocumented goes to them without a word") {
    probe::run_probe("old_and_undocumented_names_go_to_the_driver", probe::preloaded()).check();
}

TEST_CASE("lookups: what an old driver lacks is not found, and its calls answer") {
    probe::run_probe("an_old_driver_lacks_what_it_lacks", probe::preloaded("old_driver")).check();
}

// The ways in which programs get at the driver: linked, opened by name or by path with any flags, looked up
// by handle, in the default scope or in what comes next.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

using namespace drivers;

namespace {

// That `handle` gives a program what it should get for every row.
void check_handle(void* handle) {
    REQUIRE(handle != nullptr);
    for (const table::Row& row : table::kRows) {
        CAPTURE(row.symbol);
        dlerror();
        CHECK(dlsym(handle, std::string(row.symbol).c_str()) == expected(row));
        CHECK(dlerror() == nullptr);
    }
    dlerror();
    CHECK(dlsym(handle, "cuNoSuchFunction") == nullptr);
    const char* reason = dlerror();
    REQUIRE(reason != nullptr);
    CHECK(std::string(reason).find("undefined symbol: cuNoSuchFunction") != std::string::npos);
}

std::string driver_file() {
    return std::string(std::getenv("LD_LIBRARY_PATH")) + "/libcuda.so.1";
}

}  // namespace

PROBE(opened_by_name_with_every_flag) {
    for (const int when : {RTLD_NOW, RTLD_LAZY}) {
        for (const int scope : {RTLD_LOCAL, RTLD_GLOBAL}) {
            for (const int extra : {0, RTLD_DEEPBIND, RTLD_NODELETE, RTLD_NOLOAD}) {
                CAPTURE(when);
                CAPTURE(scope);
                CAPTURE(extra);
                void* const handle = dlopen("libcuda.so.1", when | scope | extra);
                check_handle(handle);
                CHECK(dlclose(handle) == 0);
            }
        }
    }
}

// Taichi opens this name from a library that was itself opened with RTLD_DEEPBIND, so that its dlsym is
// glibc's.
PROBE(opened_without_its_version) {
    using Dlsym = void* (*)(void*, const char*);
    const auto glibc_dlsym = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"));
    for (const int flags : {RTLD_NOW | RTLD_LOCAL, RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND}) {
        void* const handle = dlopen("libcuda.so", flags);
        check_handle(handle);
        CHECK(handle == libcuda());
        for (const table::Row& row : table::kRows) {
            CAPTURE(row.symbol);
            CHECK(glibc_dlsym(handle, std::string(row.symbol).c_str()) == shim_function(row.symbol));
        }
    }
}

// Before the shim has loaded the driver, and with the file that it will load.
PROBE(opened_by_path_before_the_first_call) {
    void* const handle = dlopen(driver_file().c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != nullptr);
    CHECK(dlsym(handle, "cuGetProcAddress_v2") == shim_function("cuGetProcAddress_v2"));
    check_handle(handle);
}

PROBE(opened_by_path_after_the_first_call) {
    CHECK(dlsym(libcuda(), "cuInit") != nullptr);
    check_handle(dlopen(driver_file().c_str(), RTLD_NOW | RTLD_LOCAL));
    check_handle(dlopen(driver_file().c_str(), RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND));
}

PROBE(found_in_the_default_scope) {
    void* const program = dlopen(nullptr, RTLD_NOW);
    for (const table::Row& row : table::kRows) {
        CAPTURE(row.symbol);
        const std::string symbol(row.symbol);
        void* const found = dlsym(RTLD_DEFAULT, symbol.c_str());
        Dl_info info;
        REQUIRE(dladdr(found, &info) != 0);
        CHECK(std::string(info.dli_fname).ends_with("liblmsshim.so"));
        CHECK(dlsym(program, symbol.c_str()) == expected(row));
    }
}

PROBE(names_only_the_driver_has) {
    CHECK(dlsym(libcuda(), "dlsym") == dlsym(RTLD_DEFAULT, "dlsym"));  // the shim's own stay its own
    for (void* const handle : {libcuda(), dlopen(driver_file().c_str(), RTLD_NOW)}) {
        void* const future = dlsym(handle, "cuFutureCall");
        REQUIRE(future != nullptr);
        CHECK(reinterpret_cast<int (*)()>(future)() >= fake::kAnswerBase);
        CHECK(dlsym(handle, fake::kRecordSymbol) != nullptr);
    }
}

// The driver gives its symbols no versions, so a versioned lookup finds none: there is nothing to hook in
// dlvsym.
PROBE(found_with_dlvsym_as_without_the_shim) {
    void* const driver = dlopen(driver_file().c_str(), RTLD_NOW | RTLD_LOCAL);
    for (const char* version : {"libcuda.so.1", "GLIBC_2.2.5", "GLIBC_2.34"}) {
        CAPTURE(version);
        CHECK(dlvsym(driver, "cuInit", version) == nullptr);
        CHECK(dlvsym(libcuda(), "cuInit", version) == nullptr);
        CHECK(dlvsym(RTLD_DEFAULT, "cuInit", version) == nullptr);
    }
}

// A copy of the driver in a namespace of its own is out of reach; that must not pass in silence.
PROBE(opened_in_another_namespace) {
    void* const copy = dlmopen(LM_ID_NEWLM, driver_file().c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(copy != nullptr);
    for (int i = 0; i < 2; ++i) {
        void* const lookup = dlsym(copy, "cuGetProcAddress_v2");
        CHECK(lookup != nullptr);
        CHECK(lookup != shim_function("cuGetProcAddress_v2"));
    }
    CHECK(dlsym(copy, "cuNoSuchFunction") == nullptr);
}

// glibc's own dlsym, as a library opened with RTLD_DEEPBIND binds it.
PROBE(opened_by_path_past_the_hook) {
    using Dlsym = void* (*)(void*, const char*);
    const auto glibc_dlsym = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"));
    void* const handle = dlopen(driver_file().c_str(), RTLD_NOW | RTLD_LOCAL);
    const bool audited = std::getenv("LD_AUDIT") != nullptr;
    CHECK((glibc_dlsym(handle, "cuGetProcAddress_v2") == shim_function("cuGetProcAddress_v2")) == audited);
    const auto version = reinterpret_cast<int (*)(int*)>(glibc_dlsym(handle, "cuDriverGetVersion"));
    int found = 0;
    CHECK(version(&found) == kSuccess);
    CHECK(found == 13050);
}

PROBE(next_and_default_see_the_caller) {
    const auto ask = [](const char* library, const char* question) {
        void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
        REQUIRE(handle != nullptr);
        const auto function = reinterpret_cast<const char* (*)()>(dlsym(handle, question));
        return std::string(function());
    };
    const std::string first = std::getenv("FIRST");
    const std::string second = std::getenv("SECOND");
    CHECK(ask(first.c_str(), "next_neighbour") == "second");
    CHECK(ask(second.c_str(), "next_neighbour") == "");
    CHECK(ask(first.c_str(), "first_neighbour") == "first");
    CHECK(ask(second.c_str(), "first_neighbour") == "first");
}

PROBE(other_lookups_are_untouched) {
    void* const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    CHECK(dlsym(libc, "getpid") == dlsym(RTLD_DEFAULT, "getpid"));
    CHECK(dlsym(libc, "getpid") == dlsym(RTLD_NEXT, "getpid"));
    dlerror();
    CHECK(dlsym(libc, "cublasCreate_v2") == nullptr);
    CHECK(std::string(dlerror()).find("cublasCreate_v2") != std::string::npos);
    CHECK(dlerror() == nullptr);
}

TEST_CASE("opening: libcuda.so.1 opened with any flags is the shim") {
    probe::run_probe("opened_by_name_with_every_flag", probe::preloaded()).check();
}

TEST_CASE("opening: libcuda.so is the shim too, also for a library that binds past the dlsym hook") {
    probe::run_probe("opened_without_its_version", probe::preloaded()).check();
}

TEST_CASE("opening: libcuda opened by its path gives hooked functions all the same") {
    probe::run_probe("opened_by_path_before_the_first_call", probe::preloaded()).check();
    probe::run_probe("opened_by_path_after_the_first_call", probe::preloaded()).check();
}

TEST_CASE("opening: the default scope and the program's own handle have the shim's functions") {
    probe::run_probe("found_in_the_default_scope", probe::preloaded()).check();
}

TEST_CASE("opening: a name that only the installed driver has is found and named once") {
    const probe::Result result =
        probe::run_probe("names_only_the_driver_has", probe::preloaded("new_driver"));
    INFO(result.out);
    CHECK(result.status == 0);
    CHECK(result.err ==
          "lms: cuFutureCall is not known to this shim: its work may reach any memory, so nothing moves "
          "until it is over\n");
}

TEST_CASE("opening: a libcuda that is out of the shim's reach is named once") {
    const probe::Result result = probe::run_probe("opened_in_another_namespace", probe::preloaded());
    INFO(result.out);
    CHECK(result.status == 0);
    const std::string file = probe::fake_driver();
    CHECK(result.err == "lms: cuGetProcAddress_v2 comes from " + file +
                            ", not from the driver behind the shim, " + file +
                            ": the shim sees none of its calls\n");
}

TEST_CASE(
    "opening: a program that opens libcuda by path past the dlsym hook is led to the shim by LD_AUDIT") {
    probe::run_probe("opened_by_path_past_the_hook", probe::preloaded()).check();
    const probe::Environment audit{{"LD_AUDIT", probe::built("interpose/audit.so")},
                                   {"SHIM", probe::built("liblmsshim.so")}};
    probe::run_probe("opened_by_path_past_the_hook", probe::with(probe::preloaded(), audit)).check();
}

TEST_CASE("opening: dlvsym finds no driver function, as without the shim") {
    probe::run_probe("found_with_dlvsym_as_without_the_shim", probe::preloaded()).check();
}

TEST_CASE("peers: RTLD_NEXT means after the caller, not after the shim") {
    const std::string first = probe::built("interpose/neighbour_first.so");
    const std::string second = probe::built("interpose/neighbour_second.so");
    const std::string shim = probe::built("liblmsshim.so");
    for (const std::string& order : {shim + ":" + first + ":" + second, first + ":" + shim + ":" + second,
                                     first + ":" + second + ":" + shim, first + ":" + second}) {
        CAPTURE(order);
        const probe::Environment environment{{"FIRST", first}, {"SECOND", second}, {"LD_PRELOAD", order}};
        probe::run_probe("next_and_default_see_the_caller", environment).check();
    }
}

TEST_CASE("opening: lookups that have nothing to do with CUDA are untouched") {
    probe::run_probe("other_lookups_are_untouched", probe::preloaded()).check();
}

TEST_CASE("opening: a program linked with -lcuda is bound to the shim") {
    const probe::Result result = probe::run({probe::built("interpose/linked")}, probe::preloaded());
    result.check();
    CHECK(result.out == "init 100 version 0 13050 hooked\n");
}

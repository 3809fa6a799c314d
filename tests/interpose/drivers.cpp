#include "tests/interpose/drivers.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace drivers {
namespace {

void* fake_driver() {
    static void* const handle = dlopen(
        (std::string(std::getenv("LD_LIBRARY_PATH")) + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    return handle;
}

}  // namespace

void* libcuda() {
    static void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle;
}

const fake::Address& address(const table::Row& row) {
    static const auto* const all =
        static_cast<const fake::Address*>(dlsym(fake_driver(), fake::kAddressesSymbol));
    return all[&row - std::begin(table::kRows)];
}

const fake::Record& record() {
    static const auto* const record =
        static_cast<const fake::Record*>(dlsym(fake_driver(), fake::kRecordSymbol));
    return *record;
}

void* shim_function(std::string_view symbol) {
    // The default scope has the preloaded shim first, and the shim leaves lookups there to glibc.
    return dlsym(RTLD_DEFAULT, std::string(symbol).c_str());
}

void* expected(const table::Row& row) {
    return row.action == table::Action::PASS ? address(row).exported : shim_function(row.symbol);
}

}  // namespace drivers

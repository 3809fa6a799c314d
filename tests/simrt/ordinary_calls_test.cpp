// Nothing that ordinary programs call is lacking: neither from the runtime, nor from the driver behind it.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <link.h>

#include <map>
#include <set>
#include <string>

#include "tests/support/process.h"

namespace {

struct Call {
    int step;
    const char* name;
};

constexpr Call kCalls[] = {
#define ORDINARY_CALL(step, name) {step, #name},
#include "tests/simrt/ordinary_calls.def"
};

const std::set<std::string> kLacking = {
#define RT_LACKS(name) #name,
#include "tools/simcuda/runtime/unimplemented.def"
};

// The driver's function behind one of the runtime's, where there is just one.
const std::map<std::string, std::string> kForwards = {
#define RT_FORWARD(runtime, driver) {#runtime, #driver},
#define RT_FORWARD_DRIVER(runtime, driver) {#runtime, #driver},
#define RT_FORWARD_STREAM(runtime, driver) {#runtime, #driver}, {#runtime "_ptsz", #driver "_ptsz"},
#include "tools/simcuda/runtime/forwards.def"
};

struct Library {
    explicit Library(const char* name)
        : handle(dlopen((support::build_dir() + "/sim/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) {
        REQUIRE_MESSAGE(handle, dlerror());
    }
    // An entry point the driver lacks is there as a weak function that answers CUDA_ERROR_NOT_SUPPORTED.
    bool has(const std::string& name) const {
        void* address = dlsym(handle, name.c_str());
        Dl_info info{};
        ElfW(Sym)* symbol = nullptr;
        if (!address || !dladdr1(address, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT))
            return false;
        return symbol && ELF64_ST_BIND(symbol->st_info) != STB_WEAK;
    }
    void* handle;
};

bool of_driver(const std::string& name) {
    return name.starts_with("cu") && !name.starts_with("cuda");
}

}  // namespace

TEST_CASE("ordinary calls: none is lacking") {
    const Library runtime("libcudart.so.13"), driver("libcuda.so.1");
    CHECK_FALSE(driver.has("cuGLInit"));  // what lacks is told apart
    std::size_t needed = 0;
    for (const Call& call : kCalls) {
        const std::string name = call.name;
        CAPTURE(call.step);
        CAPTURE(name);
        needed += call.step <= 58;
        if (of_driver(name)) {
            CHECK(driver.has(name));
            continue;
        }
        CHECK(dlsym(runtime.handle, call.name) != nullptr);
        CHECK_FALSE(kLacking.contains(name));
        if (const auto forward = kForwards.find(name); forward != kForwards.end())
            CHECK_MESSAGE(driver.has(forward->second), forward->second);
    }
    CHECK(needed == 191);
}

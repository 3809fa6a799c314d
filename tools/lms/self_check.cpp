#include "tools/lms/self_check.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "shim/util/ask_apart.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/places.h"

namespace lms::tool {

int self_check(const std::string& bus_id) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);  // a driver that dies here is no news
    closefrom(STDERR_FILENO + 1);
    alarm(60);  // nobody may be there to end it
    // No part of the program that asks: nor is it for the simulated driver.
    for (const char* variable : {"SIMCUDA_REPORT", "SIMCUDA_LOG", "SIMCUDA_FAIL"}) unsetenv(variable);
    setenv("LMS_HOST_MAPPING", "on", 1);
    setenv("LMS_LOG", "off", 1);
    void* const shim = dlopen(find_shim().c_str(), RTLD_NOW | RTLD_LOCAL);
    using Check = void (*)(const char*, std::FILE*);
    const auto check = shim ? reinterpret_cast<Check>(dlsym(shim, "lms_self_check")) : nullptr;
    if (!check) {
        fmt::print("not tried: no shim beside this program\n");
        return kCannotSetUp;
    }
    check(bus_id.c_str(), stdout);
    return 0;
}

std::string self_check_apart(const std::string& bus_id, const std::string& driver) {
    const auto said = util::ask_apart({std::filesystem::read_symlink("/proc/self/exe"), "self-check", bus_id},
                                      {{"LMS_DRIVER", driver}});
    if (!said) return "not tried: no process to try it with";
    return said->empty() ? "died" : *said;
}

}  // namespace lms::tool

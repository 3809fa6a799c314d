#include "tools/lms/self_check.h"

#include <dlfcn.h>
#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>

#include "shim/device/host_mapping.h"
#include "shim/util/ask_apart.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/places.h"

namespace lms::tool {

namespace {

// In a process that the driver may end.
int try_moves(const std::string& bus_id) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
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

// What is not the driver's doing tells nothing of it.
bool ended_from_outside(int status) {
    if (!WIFSIGNALED(status)) return false;
    constexpr int kOwn[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    return std::ranges::find(kOwn, WTERMSIG(status)) == std::end(kOwn);
}

}  // namespace

int self_check(const std::string& bus_id) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);  // a driver that dies here is no news
    closefrom(STDERR_FILENO + 1);
    const pid_t trying = fork();
    if (trying == 0) return try_moves(bus_id);
    int status = 0;
    while (trying > 0 && waitpid(trying, &status, 0) < 0 && errno == EINTR) {
    }
    if (trying < 0 || ended_from_outside(status)) {
        fmt::print("{}{}\n", device::kNotTried,
                   trying < 0 ? "no process to try it in" : "something killed the trial");
        return kCannotSetUp;
    }
    // Behind the verdict, where there is one.
    if (status != 0) fmt::print("{}\n", device::kDied);
    return 0;
}

std::string self_check_apart(const std::string& bus_id, const std::string& driver) {
    const auto said = util::ask_apart({std::filesystem::read_symlink("/proc/self/exe"), "self-check", bus_id},
                                      {{"LMS_DRIVER", driver}});
    if (!said) return "not tried: no process to try it with";
    return said->empty() ? "not tried: something killed the trial" : *said;
}

}  // namespace lms::tool

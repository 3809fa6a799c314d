#include "tests/simcuda/sim.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

namespace sim {
namespace {

// Seconds after which a body that hangs is killed; none takes a tenth of it.
constexpr unsigned kPatience = 120;

void* library = nullptr;
std::string failures;
std::mutex failures_mutex;

std::string library_path() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "sim/libcuda.so.1";
}

void run_body(const Environment& environment, void (*body)()) {
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    library = ::dlopen(library_path().c_str(), RTLD_NOW);
    if (library == nullptr) return failed(__FILE__, __LINE__, ::dlerror());
    try {
        body();
    } catch (const Stop&) {
    }
}

sigjmp_buf escape;
void on_fault(int) {
    siglongjmp(escape, 1);
}

int report_file = -1;

void send_failures() {
    std::size_t sent = 0;
    while (sent < failures.size()) {
        const auto bytes = ::write(report_file, failures.data() + sent, failures.size() - sent);
        if (bytes <= 0) break;
        sent += static_cast<std::size_t>(bytes);
    }
    ::close(report_file);
}

std::string read_all(int file) {
    std::string text;
    std::array<char, 4096> buffer;
    for (;;) {
        const auto bytes = ::read(file, buffer.data(), buffer.size());
        if (bytes <= 0) return text;
        text.append(buffer.data(), static_cast<std::size_t>(bytes));
    }
}

}  // namespace

std::string run(const Environment& environment, void (*body)(), std::string* stderr_text) {
    int report[2], errors[2];
    if (::pipe(report) != 0 || ::pipe(errors) != 0) return "pipe failed";
    std::fflush(nullptr);  // or the child writes it too
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(kPatience);
        ::close(report[0]);
        ::close(errors[0]);
        if (stderr_text != nullptr) ::dup2(errors[1], STDERR_FILENO);
        ::close(errors[1]);
        report_file = report[1];
        run_body(environment, body);
        send_failures();
        std::exit(0);  // the driver's report is written at exit
    }
    ::close(report[1]);
    ::close(errors[1]);
    std::string text = read_all(report[0]);
    const std::string said = read_all(errors[0]);
    if (stderr_text != nullptr) *stderr_text = said;
    ::close(report[0]);
    ::close(errors[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) text += std::string("killed by ") + ::strsignal(WTERMSIG(status));
    return text;
}

pid_t fork_body(const std::function<void()>& body) {
    const pid_t process = ::fork();
    if (process != 0) return process;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(kPatience);
    failures.clear();
    try {
        body();
    } catch (const Stop&) {
    }
    send_failures();
    ::_exit(0);
}

void join(pid_t process) {
    int status = 0;
    ::waitpid(process, &status, 0);
    if (WIFSIGNALED(status))
        failed(__FILE__, __LINE__, std::string("killed by ") + ::strsignal(WTERMSIG(status)));
}

void* symbol(const char* name) {
    void* found = ::dlsym(library, name);
    if (found == nullptr) {
        failed(__FILE__, __LINE__, std::string("not exported: ") + name);
        stop();
    }
    return found;
}

void failed(const char* file, int line, const std::string& what) {
    std::lock_guard lock(failures_mutex);
    failures += std::string(file) + ":" + std::to_string(line) + ": " + what + "\n";
}

std::string error_text(CUresult result) {
    const char* name = nullptr;
    CU(cuGetErrorName)(result, &name);
    return name == nullptr ? std::to_string(result) : name;
}

void stop() {
    throw Stop{};
}

Gpu::Gpu() {
    OK(cuInit, 0);
    OK(cuDeviceGet, &device, 0);
    OK(cuDevicePrimaryCtxRetain, &context, device);
    OK(cuCtxSetCurrent, context);
}

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed) {
    std::vector<std::uint8_t> data(bytes);
    std::uint32_t state = seed * 2654435761u + 1;
    for (std::uint8_t& byte : data) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<std::uint8_t>(state >> 24);
    }
    return data;
}

std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    OK(cuMemGetInfo, &free, &total);
    return free;
}

std::vector<std::uint8_t> read_back(CUdeviceptr from, std::size_t bytes) {
    std::vector<std::uint8_t> data(bytes);
    OK(cuMemcpyDtoH, data.data(), from, bytes);
    return data;
}

bool cpu_can_read(std::uint64_t address) {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = on_fault;
    ::sigaction(SIGSEGV, &action, &before);
    volatile bool readable = false;
    if (sigsetjmp(escape, 1) == 0) {
        [[maybe_unused]] const char byte = *reinterpret_cast<volatile char*>(address);
        readable = true;
    }
    ::sigaction(SIGSEGV, &before, nullptr);
    return readable;
}

}  // namespace sim

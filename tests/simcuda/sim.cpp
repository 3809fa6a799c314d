#include "tests/simcuda/sim.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>

#include "tests/support/child.h"

namespace sim {
namespace {

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

std::string text_of(std::FILE* file) {
    std::string text;
    std::rewind(file);
    for (int letter; (letter = std::fgetc(file)) != EOF;) text += static_cast<char>(letter);
    return text;
}

}  // namespace

std::string run(const Environment& environment, void (*body)(), std::string* stderr_text) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> errors(std::tmpfile(), std::fclose);
    const std::string text = support::report_of_child([&](int report) {
        if (stderr_text != nullptr) ::dup2(::fileno(errors.get()), STDERR_FILENO);
        report_file = report;
        run_body(environment, body);
        support::write_report(report, failures);
        std::exit(0);  // the driver's report is written at exit
    });
    if (stderr_text != nullptr) *stderr_text = text_of(errors.get());
    return text;
}

pid_t fork_body(const std::function<void()>& body) {
    return support::start_child([&] {
        failures.clear();
        try {
            body();
        } catch (const Stop&) {
        }
        support::write_report(report_file, failures);
    });
}

void join(pid_t process) {
    const std::string death = support::death_of_child(support::end_of_child(process));
    if (!death.empty()) failed(__FILE__, __LINE__, death);
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

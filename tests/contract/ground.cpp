#include "tests/contract/ground.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tests/contract/driver_ground.h"
#include "tests/contract/fake_ground.h"

namespace lms::contract {

namespace {

// Seconds after which a body that hangs is killed; none takes a tenth of it.
constexpr unsigned kPatience = 60;

std::mutex failures_mutex;
std::string failures;

struct Stop {};

std::string take_failures() {
    const std::lock_guard lock(failures_mutex);
    return std::exchange(failures, "");
}

std::string driver_path() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "sim/libcuda.so.1";
}

// Runs `child` in a process of its own; what it notes as failed, or how it died.
std::string in_child(const std::function<void()>& child) {
    int report[2];
    if (::pipe(report) != 0) return "pipe failed\n";
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(kPatience);
        // Nothing may leave here but by _exit: the cases after this one are the parent's.
        try {
            child();
        } catch (const Stop&) {
        } catch (...) {
            failed(__FILE__, __LINE__, "an exception");
        }
        const std::string text = take_failures();
        const bool told = ::write(report[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
        ::_exit(told ? 0 : 1);
    }
    ::close(report[1]);
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t bytes; (bytes = ::read(report[0], buffer.data(), buffer.size())) > 0;) {
        text.append(buffer.data(), static_cast<std::size_t>(bytes));
    }
    ::close(report[0]);
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) text += std::string("killed by ") + ::strsignal(WTERMSIG(status)) + "\n";
    return text;
}

std::string said(const std::string& ground, const std::string& text) {
    return text.empty() ? "" : ground + ": " + text;
}

}  // namespace

std::string on_driver(const Environment& environment, void (*body)(Ground&)) {
    return in_child([&] {
        ::setenv("LMS_DRIVER", driver_path().c_str(), 1);
        ::setenv("SIMCUDA_MEMORY", "64M", 1);
        for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
        body(driver_ground());
    });
}

std::string on_every_ground(void (*body)(Ground&)) {
    std::string text;
    for (const bool maps_host : {true, false}) {
        const std::string mapped = maps_host ? ", host memory mapped" : ", host memory pinned";
        text += said("fake" + mapped, in_child([&] {
                         FakeGround ground(maps_host);
                         body(ground);
                     }));
        text += said("driver" + mapped, on_driver({{"SIMCUDA_HOST_VMM", maps_host ? "1" : "0"}}, body));
    }
    return text;
}

void failed(const char* file, int line, const std::string& what) {
    const std::lock_guard lock(failures_mutex);
    failures += std::string(file) + ":" + std::to_string(line) + ": " + what + "\n";
}

void stop() {
    throw Stop{};
}

void await(Port& port, CUevent event) {
    CUresult status = CUDA_ERROR_NOT_READY;
    while ((status = port.query(event)) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    EXPECT(status == CUDA_SUCCESS);
}

Mapped::Mapped(Port& port_, Place place_, std::uint64_t bytes_) : port(port_), place(place_), bytes(bytes_) {
    NEED(port.reserve(bytes, address) == CUDA_SUCCESS);
    NEED(port.reserve(bytes, alias) == CUDA_SUCCESS);
    NEED(port.create(bytes, place, handle) == CUDA_SUCCESS);
    NEED(port.map(address, bytes, handle, place) == CUDA_SUCCESS);
    NEED(port.map(alias, bytes, handle, place) == CUDA_SUCCESS);
}

Mapped::~Mapped() {
    EXPECT(port.unmap(address, bytes) == CUDA_SUCCESS);
    EXPECT(port.unmap(alias, bytes) == CUDA_SUCCESS);
    EXPECT(port.release(handle) == CUDA_SUCCESS);
    EXPECT(port.unreserve(address, bytes) == CUDA_SUCCESS);
    EXPECT(port.unreserve(alias, bytes) == CUDA_SUCCESS);
}

Words pattern(std::uint32_t seed, std::uint32_t count) {
    Words words(count);
    std::uint32_t state = seed * 2654435761u + 1;
    for (std::uint32_t& word : words) word = state = state * 1664525u + 1013904223u;
    return words;
}

Words plus(Words words, std::uint32_t summand) {
    for (std::uint32_t& word : words) word += summand;
    return words;
}

}  // namespace lms::contract

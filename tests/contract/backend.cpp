#include "tests/contract/backend.h"

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tests/contract/driver_backend.h"
#include "tests/contract/fake_backend.h"
#include "tests/support/child.h"

namespace lms::contract {

namespace {

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

// Runs `body` in a process of its own; what it notes as failed, or how it died.
std::string in_child(const std::function<void()>& body) {
    return support::report_of_child([&](int report) {
        try {
            body();
        } catch (const Stop&) {
        } catch (...) {
            failed(__FILE__, __LINE__, "an exception");
        }
        support::write_report(report, take_failures());
    });
}

std::string said(const std::string& backend, const std::string& text) {
    return text.empty() ? "" : backend + ": " + text;
}

}  // namespace

std::string on_driver(const Environment& environment, void (*body)(Backend&)) {
    return in_child([&] {
        ::setenv("LMS_DRIVER", driver_path().c_str(), 1);
        ::setenv("SIMCUDA_MEMORY", "64M", 1);
        for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
        body(driver_backend());
    });
}

std::string on_every_backend(void (*body)(Backend&)) {
    std::string text;
    for (const bool maps_host : {true, false}) {
        const std::string mapped = maps_host ? ", host memory mapped" : ", host memory pinned";
        text += said("fake" + mapped, in_child([&] {
                         FakeBackend backend(maps_host);
                         body(backend);
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

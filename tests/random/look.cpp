#include "tests/random/look.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/random/driver.h"

namespace rnd {

namespace {

std::size_t lines_of(const char* path) {
    std::ifstream file(path);
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
}

std::size_t entries_of(const char* path) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
}

std::string rss_kib() {
    std::ifstream file("/proc/self/status");
    for (std::string word; file >> word;) {
        if (word == "VmRSS:" && file >> word) return word;
    }
    return "?";
}

// In one piece, so it shrinks where what is free is scattered.
std::size_t largest_buffer() {
    constexpr std::size_t kMost = 2 << 20;
    constexpr std::size_t kStep = 64 << 10;
    for (std::size_t bytes = kMost; bytes > 0; bytes -= kStep) {
        CUdeviceptr address = 0;
        if (CU(cuMemAlloc_v2)(&address, bytes) != CUDA_SUCCESS) continue;
        CU(cuMemFree_v2)(address);
        return bytes;
    }
    return 0;
}

}  // namespace

std::string look() {
    const std::size_t largest = largest_buffer();
    CU(cuProfilerStop)();
    return "rss_kib=" + rss_kib() + " mappings=" + std::to_string(lines_of("/proc/self/maps")) +
           " files=" + std::to_string(entries_of("/proc/self/fd")) +
           " threads=" + std::to_string(entries_of("/proc/self/task")) +
           " largest=" + std::to_string(largest);
}

}  // namespace rnd

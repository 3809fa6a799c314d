// One of several programs on a GPU: uses its buffers in turn, a launch each. tenant BUFFERS BUFFER_KIB
// COMES_MS FROM_MS UNTIL_MS [read] [THINK_MS [ROUNDS]]: it begins at COMES_MS by the simulated GPU's clock,
// and thinks so long after each ROUNDS rounds. It prints how many launches a second were over from FROM_MS
// until UNTIL_MS, and by half seconds; then how many ms a round took, of 99 in 100 at the most. Fails where a
// word is not what it wrote.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/apps/check.h"

namespace {

constexpr unsigned kThreads = 64;

// Every byte, as a kernel has to that uses them where they are.
__global__ void write(uint4* buffer, std::size_t count) {
    for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) {
        uint4 four = buffer[i];
        buffer[i] = {++four.x, four.y, four.z, four.w};
    }
}

__global__ void read(const uint4* buffer, std::size_t count, unsigned* sum) {
    unsigned mine = 0;
    for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) mine += buffer[i].x;
    sum[threadIdx.x] += mine;
}

template <typename Function>
Function* of_gpu(const char* name) {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
    void* const found = driver ? dlsym(driver, name) : nullptr;
    if (!found) std::exit(2);
    return reinterpret_cast<Function*>(found);
}

struct Step {
    double begin_ms, end_ms;
};

double launches_in(const std::vector<Step>& steps, std::size_t launches, double from, double until) {
    double all = 0;
    for (const Step& step : steps) {
        const double begin = std::max(from, step.begin_ms), end = std::min(until, step.end_ms);
        if (end > begin) all += static_cast<double>(launches) * (end - begin) / (step.end_ms - step.begin_ms);
    }
    return all;
}

double p99_in(const std::vector<Step>& steps, double from) {
    std::vector<double> took;
    for (const Step& step : steps)
        if (step.begin_ms >= from) took.push_back(step.end_ms - step.begin_ms);
    std::sort(took.begin(), took.end());
    return took.empty() ? 0 : took[(took.size() * 99 - 1) / 100];
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 6) return 2;
    const std::size_t buffers = std::strtoul(argv[1], nullptr, 10), bytes = std::strtoul(argv[2], nullptr, 10)
                                                                            << 10;
    const double comes = std::atof(argv[3]), from = std::atof(argv[4]), until = std::atof(argv[5]);
    const bool reads = argc > 6 && std::string_view(argv[6]) == "read";
    const double think_ms = argc > 6 + reads ? std::atof(argv[6 + reads]) : 0;
    const std::size_t rounds = argc > 7 + reads ? std::strtoul(argv[7 + reads], nullptr, 10) : 1;
    CHECK(cudaFree(nullptr));
    auto* const now_ns = of_gpu<std::uint64_t()>("simcuda_now_ns");
    const auto now = [&] { return static_cast<double>(now_ns()) / 1e6; };
    const auto spend = [](double ms) {
        of_gpu<void(std::uint64_t)>("simcuda_spend_ns")(static_cast<std::uint64_t>(ms * 1e6));
    };
    if (comes > now()) spend(comes - now());
    std::vector<uint4*> all(buffers);
    unsigned* sum = nullptr;
    CHECK(cudaMalloc(&sum, kThreads * sizeof *sum));
    for (std::size_t i = 0; i < buffers; ++i) {
        CHECK(cudaMalloc(&all[i], bytes));
        CHECK(cudaMemset(all[i], static_cast<int>(i % 250), bytes));
    }
    std::vector<Step> steps;
    for (double begin = now(); begin < until; begin = now()) {
        for (uint4* const buffer : all) {
            if (reads) {
                read<<<1, kThreads>>>(buffer, bytes / sizeof *buffer, sum);
            } else {
                write<<<1, kThreads>>>(buffer, bytes / sizeof *buffer);
            }
        }
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        steps.push_back({begin, now()});
        if (think_ms > 0 && steps.size() % rounds == 0) spend(think_ms);
    }
    for (std::size_t i = 0; i < buffers; ++i) {
        unsigned word = 0;
        CHECK(cudaMemcpy(&word, all[i], sizeof word, cudaMemcpyDeviceToHost));
        const unsigned expected = static_cast<unsigned>(i % 250) * 0x01010101u + (reads ? 0 : steps.size());
        if (word == expected) continue;
        std::fprintf(stderr, "buffer %zu: %u, expected %u\n", i, word, expected);
        return 1;
    }
    std::printf("%.2f", launches_in(steps, buffers, from, until) * 1000 / (until - from));
    for (double at = comes; at + 500 <= until; at += 500)
        std::printf(" %.1f", launches_in(steps, buffers, at, at + 500) * 2);
    std::printf("\n%.2f\n", p99_in(steps, from));
    return 0;
}

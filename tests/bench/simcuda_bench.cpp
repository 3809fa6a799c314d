// Speed of translated kernels on one host thread: time per run, and per instruction of a simulated thread.
// The instructions are counted by a first run of the same PTX with a counter put in front of each.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/ptx/device.h"

namespace {

using simcuda::testing::DeviceMemory;
using simcuda::testing::Module;
using simcuda::testing::pack;

const std::string& ptx() {
    static const std::string text = [] {
        std::ifstream file(SIMCUDA_BENCH_PTX);
        return std::string{std::istreambuf_iterator<char>(file), {}};
    }();
    return text;
}

// nvcc writes an instruction a line, and one `ret` at a kernel's end.
std::string counting_ptx() {
    std::istringstream lines(ptx());
    std::string text;
    for (std::string line; std::getline(lines, line);) {
        const std::size_t first = line.find_first_not_of(" \t");
        const bool instruction = first != std::string::npos && line.back() == ';' && line[first] != '.' &&
                                 line[first] != '/' && line[first] != ')';
        if (line == "{") line += " .reg .b64 %count; mov.u64 %count, 0;";
        if (instruction) text += "add.u64 %count, %count, 1;\n";
        if (line.substr(std::min(first, line.size())) == "ret;")
            text += "red.global.add.u64 [instructions], %count;\n";
        text += line + '\n';
        if (line.starts_with(".address_size")) text += ".global .align 8 .u64 instructions = 0;\n";
    }
    return text;
}

struct Shape {
    std::uint32_t grid[2];
    std::uint32_t block[2];
};

// A launch of one of the kernels, by its name, shape and parameters.
struct Step {
    const char* kernel;
    Shape shape;
    std::vector<std::byte> parameters;
};

void run_steps(const Module& module, const std::vector<Step>& steps) {
    for (const Step& step : steps) {
        auto launch = module.launch(step.kernel, step.parameters);
        std::copy_n(step.shape.grid, 2, launch.grid);
        std::copy_n(step.shape.block, 2, launch.block);
        const auto result = simcuda::testing::run(std::move(launch));
        if (result.outcome != simcuda::exec::Outcome::Finished)
            throw std::runtime_error(step.kernel + (": " + result.message));
    }
}

void measure(benchmark::State& state, const std::vector<Step>& steps) {
    static const Module module(ptx());
    static const Module counting(counting_ptx());
    auto* instructions = static_cast<std::uint64_t*>(simcuda::to_host(counting.variable("instructions")));
    *instructions = 0;
    run_steps(counting, steps);
    run_steps(module, steps);  // compiles what it has to
    for (auto _ : state) run_steps(module, steps);
    state.counters["per_instruction"] =
        benchmark::Counter(static_cast<double>(*instructions),
                           benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void sgemm(benchmark::State& state) {
    constexpr std::uint32_t n = 256;
    const DeviceMemory a(n * n * 4), b(n * n * 4), c(n * n * 4);
    for (const DeviceMemory* matrix : {&a, &b}) std::fill_n(matrix->as<float>(), n * n, 1.0f);
    measure(state, {{"sgemm", {{n / 16, n / 16}, {16, 16}}, pack(a.address(), b.address(), c.address(), n)}});
    if (c.as<float>()[n * n - 1] != static_cast<float>(n)) state.SkipWithError("wrong product");
}
BENCHMARK(sgemm)->Unit(benchmark::kMillisecond);

void triad(benchmark::State& state) {
    constexpr std::uint32_t n = 1 << 20;
    const DeviceMemory a(n * 4), b(n * 4), c(n * 4);
    for (const DeviceMemory* vector : {&a, &b}) std::fill_n(vector->as<float>(), n, 1.0f);
    measure(state, {{"triad", {{n / 256, 1}, {256, 1}}, pack(a.address(), b.address(), c.address(), n)}});
    if (c.as<float>()[n - 1] != 4) state.SkipWithError("wrong sum");
}
BENCHMARK(triad)->Unit(benchmark::kMillisecond);

void reduction(benchmark::State& state) {
    constexpr std::uint32_t n = 1 << 20;
    const DeviceMemory values(n * 4), sum(4);
    std::fill_n(values.as<float>(), n, 1.0f);
    measure(state, {{"reduction", {{64, 1}, {256, 1}}, pack(values.address(), sum.address(), n)}});
    *sum.as<float>() = 0;
    run_steps(Module(ptx()), {{"reduction", {{64, 1}, {256, 1}}, pack(values.address(), sum.address(), n)}});
    if (*sum.as<float>() != static_cast<float>(n)) state.SkipWithError("wrong sum");
}
BENCHMARK(reduction)->Unit(benchmark::kMillisecond);

void radix_sort(benchmark::State& state) {
    constexpr std::uint32_t n = 1 << 16, kBlocks = n / 256, kCounts = 16 * kBlocks;
    const DeviceMemory first(n * 4), second(n * 4), counts(kCounts * 4);
    for (std::uint32_t i = 0; i < n; ++i) first.as<std::uint32_t>()[i] = i * 2654435761u;
    std::vector<Step> steps;
    for (std::uint32_t shift = 0; shift < 32; shift += 4) {
        const auto from = shift / 4 % 2 ? second.address() : first.address();
        const auto to = shift / 4 % 2 ? first.address() : second.address();
        steps.push_back({"radix_count", {{kBlocks, 1}, {256, 1}}, pack(from, counts.address(), shift)});
        steps.push_back({"radix_scan", {{1, 1}, {1024, 1}}, pack(counts.address(), kCounts)});
        steps.push_back({"radix_place", {{kBlocks, 1}, {256, 1}}, pack(from, to, counts.address(), shift)});
    }
    measure(state, steps);
    if (!std::is_sorted(first.as<std::uint32_t>(), first.as<std::uint32_t>() + n))
        state.SkipWithError("not sorted");
}
BENCHMARK(radix_sort)->Unit(benchmark::kMillisecond);

void stencil(benchmark::State& state) {
    constexpr std::uint32_t n = 1024;
    const DeviceMemory from(n * n * 4), to(n * n * 4);
    for (std::uint32_t i = 0; i < n * n; ++i) from.as<float>()[i] = static_cast<float>(i % n);
    measure(state, {{"stencil", {{n / 16, n / 16}, {16, 16}}, pack(from.address(), to.address(), n)}});
    constexpr std::uint32_t middle = n / 2;
    if (to.as<float>()[n * middle + middle] != static_cast<float>(middle))
        state.SkipWithError("a slope that does not stay");
}
BENCHMARK(stencil)->Unit(benchmark::kMillisecond);

void nbody(benchmark::State& state) {
    constexpr std::uint32_t n = 2048;
    const DeviceMemory bodies(n * 16), accelerations(n * 16);
    for (std::uint32_t i = 0; i < 4 * n; ++i)
        bodies.as<float>()[i] = static_cast<float>(i * 2654435761u >> 16);
    measure(state, {{"nbody", {{n / 256, 1}, {256, 1}}, pack(bodies.address(), accelerations.address(), n)}});
}
BENCHMARK(nbody)->Unit(benchmark::kMillisecond);

void barriers(benchmark::State& state) {
    measure(state, {{"barriers", {{1, 1}, {256, 1}}, pack(1000u)}});
}
BENCHMARK(barriers)->Unit(benchmark::kMillisecond);

void shuffles(benchmark::State& state) {
    const DeviceMemory out(4);
    measure(state, {{"shuffles", {{1, 1}, {256, 1}}, pack(out.address(), 1000u)}});
}
BENCHMARK(shuffles)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();

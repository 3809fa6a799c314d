// What bounds say of random kernels, held against what every thread of a small grid does.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include "shim/code/ptx_taint.h"
#include "tests/unit/ptx_reference.h"

namespace lms::reference {

namespace {

// Nothing where the code shows nothing.
std::optional<code::AccessBounds> told(const Kernel& kernel, const Launch& launch) {
    code::PtxModule module(kernel.text());
    const auto all = module.bounds_of("k");
    if (!all) return std::nullopt;
    const std::vector<unsigned char> parameters = launch.parameters();
    std::vector<std::uint64_t> inputs;
    for (const code::Parameter& each : all->inputs()) {
        REQUIRE(each.offset + each.bytes <= parameters.size());
        std::memcpy(&inputs.emplace_back(), parameters.data() + each.offset, each.bytes);
    }
    return code::PtxBounds::placed(all->follow({launch.blocks, launch.threads}, inputs), inputs);
}

bool is_in(const code::AccessBounds& bounds, const Access& access) {
    const std::size_t word = 8 * access.by->pointer;
    if (bounds.written.touch(word, 8) || (!access.stored && bounds.read.touch(word, 8))) return true;
    return std::ranges::any_of(bounds.ranges, [&](const code::AccessRange& each) {
        return access.address >= each.begin && access.address + access.bytes <= each.end &&
               (each.written || !access.stored);
    });
}

struct Counts {
    std::uint64_t kernels = 0, shown = 0, steps = 0, accesses = 0, bounded = 0;
};

// Loops may have no end.
constexpr unsigned kMostSteps = 400;

// How many accesses the bounds leave out.
unsigned wrong(const Kernel& kernel, std::uint64_t seed, Counts& counts) {
    const Launch launch = random_launch(seed);
    const std::optional<code::AccessBounds> bounds = told(kernel, launch);
    ++counts.kernels;
    if (!bounds) return 0;
    ++counts.shown;
    unsigned wrong = 0;
    counts.steps += run(kernel, launch, seed, kMostSteps, [&](const Access& access) {
        const std::size_t word = 8 * access.by->pointer;
        ++counts.accesses;
        counts.bounded += !bounds->written.touch(word, 8) && !bounds->read.touch(word, 8);
        wrong += !is_in(*bounds, access);
    });
    return wrong;
}

// Without what it does not need to be wrong.
Kernel shrunk(Kernel kernel, std::uint64_t seed) {
    Counts counts;
    for (bool smaller = true; std::exchange(smaller, false);) {
        for (std::size_t i = kernel.code.size(); i-- > 0;) {
            Kernel less = kernel;
            less.code.erase(less.code.begin() + static_cast<std::ptrdiff_t>(i));
            const bool needed = kernel.code[i].op == Op::Label &&
                                std::ranges::any_of(kernel.code, [&](const Instruction& each) {
                                    return each.op == Op::Branch && each.label == kernel.code[i].label;
                                });
            if (needed || wrong(less, seed, counts) == 0) continue;
            kernel = std::move(less);
            smaller = true;
        }
    }
    return kernel;
}

std::string told_wrong(const Kernel& kernel, std::uint64_t seed) {
    const Launch launch = random_launch(seed);
    const code::AccessBounds bounds = told(kernel, launch).value();
    std::ostringstream text;
    text << "seed " << seed << "\n" << kernel.text();
    for (const code::AccessRange& each : bounds.ranges)
        text << "range " << each.begin << " to " << each.end << (each.written ? " w\n" : "\n");
    run(kernel, launch, seed, kMostSteps, [&](const Access& access) {
        if (!is_in(bounds, access))
            text << "not in one: " << access.address << ", " << access.bytes << " bytes"
                 << (access.stored ? " w\n" : "\n");
    });
    return text.str();
}

}  // namespace

// PTX_KERNELS=FIRST,COUNT: other seeds, and more of them.
TEST_CASE("bounds: random kernels access nothing else") {
    unsigned long long first = 0;
    unsigned long long count = 4000;
    if (const char* const asked = std::getenv("PTX_KERNELS")) std::sscanf(asked, "%llu,%llu", &first, &count);
    Counts counts;
    unsigned failures = 0;
    for (std::uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
        const Kernel kernel = random_kernel(seed);
        if (wrong(kernel, seed, counts) == 0) continue;
        ++failures;
        FAIL_CHECK(told_wrong(shrunk(kernel, seed), seed));
    }
    INFO(counts.kernels << " kernels, of which " << counts.shown << " show something; " << counts.steps
                        << " steps, " << counts.accesses << " accesses, of them bounded: " << counts.bounded);
    CHECK(counts.shown > counts.kernels / 2);
    CHECK(counts.bounded > counts.accesses / 4);
}

}  // namespace lms::reference

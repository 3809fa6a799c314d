// A region that the program divides itself: launches hold the parts that their code shows them to access, to
// the last byte, and what lies beside moves meanwhile.
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/entry/gate.h"
#include "tests/entry/overlay/record.h"
#include "tests/support/kernels.h"

using namespace rig;

namespace {

// add(at, k, n): adds k to n words. fold(to, from, k, n): to[i] = to[i] * 3 + from[n - 1 - i] + k.
const std::string kPartKernels =
    support::kPtxHead +
    support::word_kernel("add_to", ".param .u64 at, .param .u32 k, .param .u32 n",
                         "ld.param.u64 %a1, [at];\nld.param.u32 %r1, [k];\nld.param.u32 %n, [n];\n",
                         "add.u64 %a1, %a1, %o; ld.global.u32 %r2, [%a1]; add.u32 %r2, %r2, %r1;"
                         "st.global.u32 [%a1], %r2;") +
    support::word_kernel("fold", ".param .u64 to, .param .u64 from, .param .u32 k, .param .u32 n",
                         "ld.param.u64 %a1, [to];\nld.param.u64 %a2, [from];\nld.param.u32 %r1, [k];\n"
                         "ld.param.u32 %n, [n];\n",
                         "add.u64 %a1, %a1, %o; ld.global.u32 %r2, [%a1]; mad.lo.u32 %r2, %r2, 3, %r1;"
                         "sub.u32 %r3, %n, %i; mul.wide.u32 %o, %r3, 4; add.u64 %a2, %a2, %o;"
                         "ld.global.u32 %r4, [%a2+-4]; add.u32 %r2, %r2, %r4; st.global.u32 [%a1], %r2;");

constexpr std::size_t kRegionBytes = 12 * kMiB;
// The first and the last KiB of a part are in granules of their own.
constexpr std::size_t kPartEdge = 1 << 10;
constexpr std::size_t kPartBytes = 3 * kGranule + 2 * kPartEdge;
constexpr unsigned kPartWords = kPartBytes / sizeof(std::uint32_t);
constexpr std::size_t kPartStep = 6 * kGranule;
constexpr std::size_t kParts = kRegionBytes / kPartStep;

std::string name_of(CUkernel kernel) {
    const char* name = nullptr;
    OK(cuKernelGetName, &name, kernel);
    return name;
}

struct DividedRegion {
    DividedRegion() {
        OK(cuModuleLoadData, &module, kPartKernels.c_str());
        OK(cuModuleGetFunction, &add_to, module, "add_to");
        OK(cuModuleGetFunction, &fold, module, "fold");
    }
    CUdeviceptr part(std::size_t i) const { return buffer.at(i * kPartStep + 2 * kGranule - kPartEdge); }
    bool is_resident(std::size_t i) const { return on_device(part(i), kPartBytes); }

    void add(std::size_t i, std::uint32_t k, CUstream stream) const {
        CUdeviceptr at = part(i);
        unsigned n = kPartWords;
        void* arguments[] = {&at, &k, &n};
        OK(cuLaunchKernel, add_to, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
    }
    void fold_from(std::size_t i, std::size_t j, std::uint32_t k, CUstream stream) const {
        CUdeviceptr to = part(i);
        CUdeviceptr from = part(j);
        unsigned n = kPartWords;
        void* arguments[] = {&to, &from, &k, &n};
        OK(cuLaunchKernel, fold, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
    }

    Buffer buffer{kRegionBytes, 1};
    CUmodule module = nullptr;
    CUfunction add_to = nullptr, fold = nullptr;
};

std::vector<std::uint32_t> words_of_part(const std::vector<std::uint8_t>& bytes, std::size_t at) {
    std::vector<std::uint32_t> words(kPartWords);
    std::memcpy(words.data(), bytes.data() + at, kPartBytes);
    return words;
}

}  // namespace

FAMILY_TEST("bounds: a launch holds the part that it works on, and nothing else of the buffer") {
    const Gpu gpu;
    const DividedRegion region;
    const CUstream held_up = new_stream();
    const CUstream other = new_stream();
    for (std::size_t i = 0; i < kParts; ++i) region.add(i, 1, other);
    OK(cuStreamSynchronize, other);
    Gate gate;
    gate.hold_up(held_up);
    region.fold_from(3, 7, 5, held_up);
    // What the others need is more than the GPU has.
    for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < kParts; ++i) {
            if (i != 3 && i != 7) region.add(i, 1, other);
            EXPECT(region.is_resident(3));
            EXPECT(region.is_resident(7));
        }
        OK(cuStreamSynchronize, other);
    }
    EXPECT(!region.is_resident(8));
    gate.open();
    OK(cuStreamSynchronize, held_up);
    const std::vector<std::uint8_t> got = region.buffer.read();
    std::vector<std::uint8_t> expected = pattern(kRegionBytes, 1);
    const auto at = [&](std::size_t i) { return region.part(i) - region.buffer.at(); };
    std::vector<std::vector<std::uint32_t>> parts;
    for (std::size_t i = 0; i < kParts; ++i) {
        parts.push_back(words_of_part(expected, at(i)));
        for (std::uint32_t& word : parts[i]) word += i == 3 || i == 7 ? 1 : 3;
    }
    for (unsigned word = 0; word < kPartWords; ++word)
        parts[3][word] = parts[3][word] * 3 + parts[7][kPartWords - 1 - word] + 5;
    for (std::size_t i = 0; i < kParts; ++i)
        std::memcpy(expected.data() + at(i), parts[i].data(), kPartBytes);
    EXPECT(got == expected);
}

OVERLAY_TEST("bounds: of a library's kernel, however its function is asked for", "library-functions") {
    const Gpu gpu;
    overlay::record().tells_apart = true;
    const auto load = [] {
        CUlibrary library = nullptr;
        OK(cuLibraryLoadData, &library, kPartKernels.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
        return library;
    };
    const auto kernel = [&] {
        CUkernel found = nullptr;
        OK(cuLibraryGetKernel, &found, load(), "add_to");
        return found;
    };
    const auto enumerated = [&] {
        std::array<CUkernel, 2> kernels{};
        OK(cuLibraryEnumerateKernels, kernels.data(), 2, load());
        return kernels[name_of(kernels[0]) == "add_to" ? 0 : 1];
    };
    const auto function_of = [&](CUkernel of) {
        CUfunction function = nullptr;
        OK(cuKernelGetFunction, &function, of);
        return function;
    };
    const auto of_module = [&] {
        CUmodule module = nullptr;
        CUfunction function = nullptr;
        OK(cuLibraryGetModule, &module, load());
        OK(cuModuleGetFunction, &function, module, "add_to");
        return function;
    };
    std::vector<std::uint8_t> expected = pattern(kRegionBytes, 1);
    DividedRegion region;
    for (const CUfunction function : {function_of(enumerated()), function_of(kernel()),
                                      reinterpret_cast<CUfunction>(kernel()), of_module()}) {
        region.add_to = function;
        for (std::size_t i = 0; i < kParts; ++i) {
            region.add(i, 1, nullptr);
            EXPECT(region.is_resident(i));
            const auto at = static_cast<std::size_t>(region.part(i) - region.buffer.at());
            std::vector<std::uint32_t> words = words_of_part(expected, at);
            for (std::uint32_t& word : words) ++word;
            std::memcpy(expected.data() + at, words.data(), kPartBytes);
        }
    }
    EXPECT(region.buffer.read() == expected);
}

// Each part is written in one stream alone, and read in its own.
FAMILY_TEST("bounds: what two streams do to the parts of one buffer is kept") {
    const Gpu gpu;
    const DividedRegion region;
    const CUstream streams[] = {new_stream(), new_stream()};
    std::vector<std::uint8_t> expected = pattern(kRegionBytes, 1);
    const auto at = [&](std::size_t i) { return region.part(i) - region.buffer.at(); };
    std::vector<std::vector<std::uint32_t>> parts;
    for (std::size_t i = 0; i < kParts; ++i) parts.push_back(words_of_part(expected, at(i)));
    std::uint32_t state = 7;
    for (std::uint32_t step = 0; step < 400; ++step) {
        state = state * 1664525 + 1013904223;
        const std::size_t side = state >> 31;
        const std::size_t i = (state >> 16) % (kParts / 2) * 2 + side;
        const std::size_t j = (state >> 8) % (kParts / 2) * 2 + side;
        if (i == j) {
            region.add(i, step, streams[side]);
            for (std::uint32_t& word : parts[i]) word += step;
            continue;
        }
        region.fold_from(i, j, step, streams[side]);
        for (unsigned word = 0; word < kPartWords; ++word)
            parts[i][word] = parts[i][word] * 3 + parts[j][kPartWords - 1 - word] + step;
    }
    for (const CUstream stream : streams) OK(cuStreamSynchronize, stream);
    for (std::size_t i = 0; i < kParts; ++i)
        std::memcpy(expected.data() + at(i), parts[i].data(), kPartBytes);
    EXPECT(region.buffer.read() == expected);
}

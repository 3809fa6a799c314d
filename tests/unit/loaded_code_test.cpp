// Kernels by the code they were loaded with: as text, in fat binaries of every packing, from files; by their
// names; and what goes with what.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shim/code/loaded_code.h"
#include "tests/support/fat_binary.h"

using namespace lms::code;
using support::FatBinary;
using support::For;
using support::Packing;

namespace {

const std::string kTold = ".version 8.4\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
const std::string kHidden =
    ".version 8.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry k(.param .u64 p) { ld.param.u64 %rd1, [p]; ld.u64 %rd2, [%rd1]; ld.u32 %r1, [%rd2]; "
    "ret; }\n";

struct Wrapper {
    std::uint32_t magic = 0x466243b1;
    std::uint32_t version = 1;
    const char* fat_binary = nullptr;
    const void* parts = nullptr;
};

constexpr CodeImage::Keep kBoth{true, true};

CodeImage image_of(const std::string& text) {
    return CodeImage(text.c_str(), std::nullopt, kBoth);
}

// What is said of kernel k of this image.
Addresses told_by(const void* image, const char* kernel = "k") {
    return CodeImage(image, std::nullopt, {.addresses = true}).kernel(kernel).addresses;
}

// Handles of what is loaded.
const char handles[8]{};
const void* handle(int which) {
    return &handles[which];
}
Addresses addresses(LoadedCode& code, int owner) {
    const void* const known = handle(owner);
    return code.code_of({&known, 1}, "k").addresses;
}
int parameters(LoadedCode& code, int owner, const char* kernel = "k") {
    const void* const known = handle(owner);
    const auto layout = code.layout_of({&known, 1}, kernel);
    return layout ? static_cast<int>(layout->size()) : -1;
}

}  // namespace

TEST_CASE("loaded code: text") {
    CHECK(told_by(kTold.c_str()) == Addresses::Complete);
    CHECK(told_by(kHidden.c_str()) == Addresses::Incomplete);
    CHECK(told_by(kTold.c_str(), "another") == Addresses::Unknown);
    CHECK(told_by("") == Addresses::Unknown);
    CHECK(told_by("abc") == Addresses::Unknown);
}

TEST_CASE("loaded code: fat binaries") {
    for (const Packing packing : {Packing::Raw, Packing::Lz4, Packing::Zstd}) {
        for (const std::uint32_t header_bytes : {64u, 80u}) {
            CHECK(told_by(FatBinary(header_bytes).ptx(75, kHidden, packing).image()) ==
                  Addresses::Incomplete);
            CHECK(told_by(FatBinary(header_bytes).ptx(75, kTold, packing).image()) == Addresses::Complete);
        }
    }
    SUBCASE("native code beside the text, and several texts: the newest counts") {
        CHECK(told_by(FatBinary()
                          .native(90)
                          .ptx(75, kTold, Packing::Lz4)
                          .ptx(90, kHidden, Packing::Zstd)
                          .ptx(80, kTold)
                          .image()) == Addresses::Incomplete);
    }
    SUBCASE("native code alone") {
        CHECK(told_by(FatBinary().native(90).image()) == Addresses::Unknown);
        CHECK(told_by("\x7f"
                      "ELF and so on") == Addresses::Unknown);
    }
    SUBCASE("what does not unpack") {
        std::string bytes = FatBinary().ptx(75, kTold, Packing::Zstd).whole();
        bytes[16 + 80 + 8] ^= 0x55;
        bytes[16 + 80 + 9] ^= 0x55;
        CHECK(told_by(bytes.c_str()) == Addresses::Unknown);
    }
}

TEST_CASE("loaded code: the wrapper that nvcc leaves") {
    const std::string told = FatBinary().ptx(75, kTold, Packing::Zstd).whole();
    const std::string hidden = FatBinary().ptx(75, kHidden, Packing::Zstd).whole();
    Wrapper wrapper;
    wrapper.fat_binary = hidden.data();
    CHECK(told_by(&wrapper) == Addresses::Incomplete);
    const char* parts[] = {told.data(), hidden.data(), nullptr};
    wrapper.version = 2;
    wrapper.fat_binary = told.data();
    wrapper.parts = parts;
    CHECK(told_by(&wrapper) == Addresses::Incomplete);
    // Which of the two runs is not known.
    CHECK(CodeImage(told.data(), std::nullopt, kBoth).layout_of("k"));
    CHECK(CodeImage(hidden.data(), std::nullopt, kBoth).layout_of("k"));
    CHECK(!CodeImage(&wrapper, std::nullopt, kBoth).layout_of("k"));
}

TEST_CASE("loaded code: files, whole and cut off") {
    const std::string path = "/tmp/lms_loaded_code_test." + std::to_string(getpid());
    const std::string whole = FatBinary().ptx(75, kHidden, Packing::Zstd).whole();
    const auto told = [&] { return CodeImage::of_file(path.c_str(), kBoth).kernel("k").addresses; };
    for (const std::string& bytes : {whole, kHidden, whole.substr(0, 60), whole.substr(0, 10),
                                     whole.substr(0, whole.size() - 9), std::string()}) {
        std::ofstream(path, std::ios::binary) << bytes;
        const bool complete = bytes == whole || bytes == kHidden;
        CHECK(told() == (complete ? Addresses::Incomplete : Addresses::Unknown));
    }
    unlink(path.c_str());
    CHECK(told() == Addresses::Unknown);
}

TEST_CASE("loaded code: a kernel whose module is not known is looked for in all that is loaded") {
    LoadedCode code;
    enum { One, Two, Other };
    code.loaded(handle(One), image_of(kTold), nullptr);
    CHECK(addresses(code, Other) == Addresses::Complete);
    CHECK(parameters(code, Other) == 0);
    code.loaded(handle(Two), image_of(kHidden), nullptr);
    CHECK(addresses(code, Other) == Addresses::Incomplete);
    CHECK(addresses(code, One) == Addresses::Complete);
    // By name alone only where just one layout goes by it.
    CHECK(parameters(code, Other) == -1);
    CHECK(parameters(code, One) == 0);
    CHECK(parameters(code, Two) == 1);
    CHECK(code.unloaded(handle(Two)).handles() == std::vector{handle(Two)});
    CHECK(addresses(code, Other) == Addresses::Complete);
    CHECK(parameters(code, Other) == 0);
    code.unloaded(handle(One));
    CHECK(addresses(code, One) == Addresses::Unknown);
    CHECK(parameters(code, One) == -1);
}

TEST_CASE("loaded code: a handle given out again stands for the new image alone, also one without PTX") {
    LoadedCode code;
    code.loaded(handle(0), image_of(kHidden), nullptr);
    code.loaded(handle(1), image_of(kTold), nullptr);
    code.loaded(handle(0), image_of(FatBinary().native(90).whole()), nullptr);
    CHECK(addresses(code, 0) == Addresses::Unknown);
    CHECK(parameters(code, 0) == -1);
}

TEST_CASE("loaded code: modules go with their context, and what libraries became there") {
    LoadedCode code;
    enum { Context, Next, Module, Library, LibrarysModule, Kernel, Function, Stays };
    code.loaded(handle(Module), image_of(kTold), handle(Context));
    code.loaded(handle(Library), image_of(kHidden), nullptr);
    code.loaded(handle(Stays), image_of(kTold), handle(Next));
    code.became(handle(LibrarysModule), handle(Library), handle(Context));
    CHECK(addresses(code, LibrarysModule) == Addresses::Incomplete);
    CHECK(parameters(code, LibrarysModule) == 1);
    code.named(handle(Kernel), {"k", handle(Library)});
    code.same(handle(Function), handle(Kernel), handle(Context));
    auto gone = code.context_gone(handle(Context)).handles();
    std::ranges::sort(gone);
    CHECK(gone == std::vector{handle(Module), handle(LibrarysModule)});
    CHECK(!code.kernel(handle(Function)));
    CHECK(code.kernel(handle(Kernel)).value().name == "k");
    CHECK(addresses(code, Library) == Addresses::Incomplete);
    CHECK(addresses(code, Stays) == Addresses::Complete);
    code.became(handle(LibrarysModule), handle(Library), handle(Next));
    gone = code.unloaded(handle(Library)).handles();
    std::ranges::sort(gone);
    CHECK(gone == std::vector{handle(Library), handle(LibrarysModule)});
    CHECK(!code.kernel(handle(Kernel)));
}

TEST_CASE("loaded code: names go from a kernel to its function, and with what they came from") {
    LoadedCode code;
    enum { Kernel, Function, Library, Context, Unheard };
    code.loaded(handle(Library), {}, nullptr);
    code.named(handle(Kernel), {"k", handle(Library)});
    code.same(handle(Function), handle(Kernel), handle(Context));
    CHECK(code.kernel(handle(Function)).value().name == "k");
    CHECK(code.kernel(handle(Function)).value().owner == handle(Library));
    code.unloaded(handle(Library));
    CHECK(!code.kernel(handle(Kernel)));
    CHECK(!code.kernel(handle(Function)));
    // The function of a kernel of which nothing is known is not what its handle was before.
    code.named(handle(Function), {"old", handle(Library)});
    code.same(handle(Function), handle(Unheard), handle(Context));
    CHECK(!code.kernel(handle(Function)));
}

TEST_CASE("loaded code: communication libraries, by name") {
    LoadedCode code;
    const auto told = [&](const char* name) { return code.code_of({}, name).addresses; };
    CHECK(told("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)") ==
          Addresses::Incomplete);
    CHECK(told("_Z22nvshmemi_barrier_kernel") == Addresses::Incomplete);
    CHECK(told("ncc") == Addresses::Unknown);
}

TEST_CASE("code: what nvcc compiles for a GPU's own features is told from what it compiles for others") {
    const auto writes = [](unsigned gpu) {
        CodeImage image = CodeImage::of_file(UNIT_FEATURES, {.addresses = true, .gpus = {&gpu, 1}});
        REQUIRE(image.kernel("choose").addresses == Addresses::Complete);
        const ParameterWords words = image.kernel("choose").written;
        return std::pair(words.touch(0, 8), words.touch(8, 8));
    };
    // sm_90a beside the PTX of compute_90, sm_100f beside its own.
    CHECK(writes(90) == std::pair(true, true));
    CHECK(writes(103) == std::pair(false, true));
    CHECK(writes(120) == std::pair(false, true));
}

TEST_CASE("code: what addresses a kernel takes is told by the PTX that runs") {
    const auto told = [](FatBinary& code, unsigned gpu) {
        return CodeImage(code.image(), std::nullopt, {.addresses = true, .gpus = {&gpu, 1}})
            .kernel("k")
            .addresses;
    };
    const std::string stores =
        ".version 8.4\n.target sm_75\n.address_size 64\n"
        ".visible .entry k(.param .u64 .ptr a) { ld.param.u64 %rd1, [a]; st.global.u32 [%rd1], 1; ret; }\n";
    FatBinary ages;
    ages.ptx(75, kHidden).ptx(90, stores);
    CHECK(told(ages, 80) == Addresses::Incomplete);
    CHECK(told(ages, 90) == Addresses::Complete);
    // What does nothing stands in for native code that is compiled from something else.
    FatBinary stub;
    stub.native(90, For::Itself).ptx(90, kTold);
    CHECK(told(stub, 90) == Addresses::Unknown);
    FatBinary same;
    same.native(90).ptx(90, kTold);
    CHECK(told(same, 90) == Addresses::Complete);
    FatBinary other;
    other.native(80).ptx(90, stores);
    CHECK(told(other, 80) == Addresses::Complete);
}

TEST_CASE("code: what a kernel writes is told by PTX that was compiled like what runs") {
    const std::string text =
        ".version 8.4\n.target sm_75\n.address_size 64\n"
        ".visible .entry k(.param .u64 .ptr a, .param .u64 .ptr b) { ld.param.u64 %rd1, [a];"
        "ld.param.u64 %rd2, [b]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd2], %r1; ret; }\n";
    const auto only_reads_a = [](FatBinary& code, std::vector<unsigned> gpus) {
        CodeImage image(code.image(), std::nullopt, {.addresses = true, .gpus = gpus});
        CHECK(image.kernel("k").addresses == Addresses::Complete);
        CHECK(image.kernel("k").written.touch(8, 8));
        CHECK(image.kernel("other").written == ParameterWords::all());
        return !image.kernel("k").written.touch(0, 8);
    };
    FatBinary ptx;
    ptx.ptx(75, text);
    for (const unsigned gpu : {75u, 90u}) CHECK(only_reads_a(ptx, {gpu}));
    FatBinary same;
    same.native(75).ptx(75, text);
    for (const unsigned gpu : {75u, 80u}) CHECK(only_reads_a(same, {gpu}));
    CHECK(only_reads_a(same, {}));
    // Where the native code is another's, it may be another kernel's too.
    FatBinary other;
    other.native(80).ptx(90, text);
    CHECK(only_reads_a(other, {90}));
    CHECK_FALSE(only_reads_a(other, {80}));
    CHECK_FALSE(only_reads_a(other, {86}));
    CHECK_FALSE(only_reads_a(other, {90, 80}));
    CHECK_FALSE(only_reads_a(other, {}));
    FatBinary several;
    several.native(80).native(86).ptx(86, text);
    CHECK(only_reads_a(several, {86}));
    CHECK(only_reads_a(several, {89}));
    CHECK_FALSE(only_reads_a(several, {80}));
    // Code for a GPU's own features is another kernel too.
    FatBinary own;
    own.native(90, For::Itself).ptx(90, text);
    CHECK_FALSE(only_reads_a(own, {90}));
    CHECK_FALSE(only_reads_a(own, {}));
    FatBinary same_own;
    same_own.native(90, For::Itself).ptx(90, text, Packing::Raw, For::Itself);
    CHECK(only_reads_a(same_own, {90}));
    FatBinary both;
    both.native(90).native(90, For::Itself).ptx(90, text);
    CHECK_FALSE(only_reads_a(both, {90}));
    FatBinary family;
    family.native(100, For::Family).ptx(100, text, Packing::Raw, For::Family);
    for (const unsigned gpu : {100u, 103u}) CHECK(only_reads_a(family, {gpu}));
    FatBinary family_without;
    family_without.native(100, For::Family).ptx(100, text);
    CHECK_FALSE(only_reads_a(family_without, {103}));
    // This does not run there.
    FatBinary another;
    another.native(100, For::Itself).ptx(100, text);
    CHECK(only_reads_a(another, {103}));

    // Of several, what runs: that like the native code, and the newest that the GPU knows.
    std::string by_both = text;
    by_both.replace(by_both.find("ret;"), 0, "st.global.u32 [%rd1], %r1;");
    FatBinary ages;
    ages.ptx(75, text).ptx(90, by_both);
    for (const unsigned gpu : {75u, 89u}) CHECK(only_reads_a(ages, {gpu}));
    CHECK_FALSE(only_reads_a(ages, {90}));
    CHECK_FALSE(only_reads_a(ages, {75, 90}));
    CHECK_FALSE(only_reads_a(ages, {}));
    FatBinary old_native;
    old_native.native(80).ptx(80, text).ptx(86, by_both).ptx(90, by_both);
    CHECK(only_reads_a(old_native, {80}));
    CHECK_FALSE(only_reads_a(old_native, {86}));  // the driver may be told to prefer it
    FatBinary own_ptx;
    own_ptx.ptx(90, text).ptx(90, by_both, Packing::Raw, For::Itself);
    CHECK_FALSE(only_reads_a(own_ptx, {90}));
    CHECK(only_reads_a(own_ptx, {100}));

    // One of which nothing can be read may write anything.
    FatBinary damaged;
    damaged.ptx(75, text).ptx(90, by_both, Packing::Lz4);
    std::ranges::fill(std::span(damaged.bytes()).last(40), '\xff');
    CHECK_FALSE(only_reads_a(damaged, {75, 90}));

    LoadedCode code;
    code.loaded(handle(0), CodeImage(text.c_str(), std::nullopt, {.addresses = true}), nullptr);
    const void* const known = handle(0);
    const void* const unknown = handle(1);
    CHECK_FALSE(code.code_of({&known, 1}, "k").written.touch(0, 8));
    CHECK(code.code_of({&unknown, 1}, "k").written == ParameterWords::all());
}

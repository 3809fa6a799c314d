// Parameter layouts read from code, held against those of the source: native code and PTX as nvcc makes them,
// and code that is broken off or garbage.
#include "shim/code/nv_info.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "shim/code/code_image.h"
#include "shim/code/fat_binary.h"
#include "shim/code/ptx_layouts.h"
#include "tests/unit/kernels/layouts.h"

using namespace lms::code;

namespace {

using Places = std::vector<std::pair<std::size_t, std::size_t>>;

Places places(const std::vector<Parameter>& layout) {
    Places all;
    for (const Parameter& parameter : layout) all.emplace_back(parameter.offset, parameter.bytes);
    return all;
}

#define PLACE(block, member) \
    { offsetof(block, member), sizeof(block::member) }

void check_all(const CodeLayouts& layouts) {
    REQUIRE(layouts.size() == 4);
    CHECK(layouts.at("nothing").empty());
    CHECK(places(layouts.at("mixed")) == Places{PLACE(MixedBlock, out), PLACE(MixedBlock, shift),
                                                PLACE(MixedBlock, aligned), PLACE(MixedBlock, odd),
                                                PLACE(MixedBlock, narrow), PLACE(MixedBlock, pointers),
                                                PLACE(MixedBlock, wide), PLACE(MixedBlock, last)});
    CHECK(places(layouts.at("large")) ==
          Places{PLACE(LargeBlock, index), PLACE(LargeBlock, large), PLACE(LargeBlock, out)});
    CHECK(places(layouts.at("many")) == Places{{0, 1},
                                               {2, 2},
                                               {4, 4},
                                               {8, 1},
                                               {16, 8},
                                               {24, 1},
                                               {28, 4},
                                               {32, 2},
                                               {40, 8},
                                               {48, 1},
                                               {56, 8},
                                               {64, 1}});
}

std::string code(const char* form) {
    std::ifstream file(std::string(UNIT_CODE) + form, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    REQUIRE(bytes.size() > 1000);
    return bytes;
}

const char* const kPtxHead = ".version 8.4\n.target sm_75\n.address_size 64\n";

}  // namespace

TEST_CASE("layouts in code: native code") {
    check_all(layouts_in_cubin(code(".cubin")));
}

TEST_CASE("layouts in code: a fat binary's native code for each GPU, and its PTX") {
    const std::string image = code(".fatbin");
    const auto cubins = find_cubins(image.data(), image.size());
    CHECK(cubins.size() == 2);
    for (const PackedCode& packed : cubins) check_all(layouts_in_cubin(unpack(packed).value()));
    const auto ptx = find_ptx(image.data(), image.size());
    REQUIRE(ptx.size() == 1);
    check_all(layouts_in_ptx(unpack(ptx[0]).value()));
}

TEST_CASE("layouts in code: of a fat binary's native code, what the GPUs can run") {
    const std::string image = code(".fatbin");  // for 7.5 and 9.0
    const auto all = find_cubins(image.data(), image.size());
    REQUIRE(all.size() == 2);
    const auto of = [&](std::vector<unsigned> gpus) {
        std::vector<std::string> bytes;
        for (const PackedCode& packed : find_cubins(image.data(), image.size(), gpus))
            bytes.push_back(packed.bytes);
        return bytes;
    };
    const std::vector<std::string> turing{all[0].bytes};
    const std::vector<std::string> hopper{all[1].bytes};
    CHECK(turing != hopper);
    CHECK(of({75}) == turing);
    CHECK(of({90}) == hopper);
    CHECK(of({91, 86}) == hopper);
    CHECK(of({75, 90}).size() == 2);
    CHECK(of({70, 80, 86, 89, 100}).empty());
    // Native code by itself is for whoever could load it.
    const std::string cubin = code(".cubin");
    CHECK(find_cubins(cubin.data(), cubin.size(), std::vector<unsigned>{75}).size() == 1);
}

TEST_CASE("layouts in code: native code tells its own length") {
    const std::string cubin = code(".cubin");
    const std::string with_more = cubin + std::string(100, 'x');
    const auto found = find_cubins(with_more.data());
    REQUIRE(found.size() == 1);
    CHECK(unpack(found[0]).value() == cubin);
}

TEST_CASE("layouts in code: what is broken off tells what it has whole, or nothing") {
    const std::string cubin = code(".cubin");
    const CodeLayouts whole = layouts_in_cubin(cubin);
    for (std::size_t bytes = 0; bytes < cubin.size(); bytes += bytes < 4096 ? 1 : 61) {
        // A copy of its own, so that a sanitizer sees any byte read beyond it.
        const std::vector<char> part(cubin.begin(), cubin.begin() + static_cast<std::ptrdiff_t>(bytes));
        for (const auto& [name, layout] : layouts_in_cubin({part.data(), part.size()})) {
            REQUIRE(whole.contains(name));
            CHECK(places(layout) == places(whole.at(name)));
        }
    }
}

TEST_CASE("layouts in code: garbage does no harm") {
    const std::string cubin = code(".cubin");
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<char> bytes(cubin.begin(), cubin.end());
        // The header, the section headers at the end, or anywhere.
        const std::size_t begin = round % 3 == 1 ? bytes.size() - 4096 : 0;
        const std::size_t end = round % 3 == 0 ? 64 : bytes.size();
        for (int i = 0; i < 16; ++i) bytes[begin + random() % (end - begin)] = static_cast<char>(random());
        std::memcpy(bytes.data(),
                    "\x7f"
                    "ELF\2",
                    5);
        for (const auto& [name, layout] : layouts_in_cubin({bytes.data(), bytes.size()})) {
            std::size_t at = 0;
            for (const Parameter& parameter : layout) {
                CHECK(parameter.offset >= at);
                at = parameter.offset + parameter.bytes;
            }
        }
    }
    std::vector<char> noise(300);
    for (int round = 0; round < 2000; ++round) {
        for (char& byte : noise) byte = static_cast<char>(random());
        CHECK(layouts_in_cubin({noise.data(), noise.size()}).empty());
        layouts_in_ptx(kPtxHead + std::string(noise.data(), noise.size()));
    }
}

TEST_CASE("layouts in code: entries that do not fit together are no layout") {
    const std::string cubin = code(".cubin");
    // The entry of the last parameter of `many`: {index 0, ordinal 11, offset 64}.
    using namespace std::string_literals;
    const std::size_t at = cubin.find("\x04\x17\x0c\x00\x00\x00\x00\x00\x0b\x00\x40\x00"s);
    REQUIRE(at != std::string::npos);
    const auto changed = [&](std::size_t offset, char byte) {
        std::string copy = cubin;
        copy[at + offset] = byte;
        return layouts_in_cubin(copy);
    };
    CHECK(!changed(8, 12).contains("many"));    // one ordinal is missing
    CHECK(!changed(8, 10).contains("many"));    // and one is there twice
    CHECK(!changed(10, 66).contains("many"));   // the block would end elsewhere
    CHECK(!changed(1, 0x18).contains("many"));  // another item: the last parameter is missing
    CHECK(!changed(2, 8).contains("many"));     // too short
    CHECK(changed(8, 11).contains("many"));     // as it was
    CHECK(changed(8, 12).contains("mixed"));    // others stay
}

TEST_CASE("layouts in code: PTX declarations") {
    const auto layout = [](const std::string& parameters) {
        return layouts_in_ptx(kPtxHead + (".visible .entry k(" + parameters + ") { ret; }\n"));
    };
    // What a pointer points to may be aligned otherwise than the pointer.
    CHECK(places(layout(".param .u32 a, .param .u64 .ptr .global .align 256 b, .param .u8 c").at("k")) ==
          Places{{0, 4}, {8, 8}, {16, 1}});
    CHECK(places(layout(".param .align 16 .b8 a[24], .param .f32 b, .param .align 64 .b8 c[128]").at("k")) ==
          Places{{0, 24}, {24, 4}, {64, 128}});
    CHECK(places(layout(".param .f64 a, .param .b16 b[3], .param .s64 c, .param .texref d").at("k")) ==
          Places{{0, 8}, {8, 6}, {16, 8}, {24, 8}});
    CHECK(layout("").at("k").empty());
    CHECK(layout(".param .unheard a").empty());
    CHECK(layout(".param .b8 a[]").empty());
    CHECK(layouts_in_ptx(kPtxHead + std::string(".visible .func k(.param .u32 a) { ret; }\n")).empty());
}

TEST_CASE("layouts in code: of a file, and of text") {
    const CodeImage::Keep keep{.layouts = true};
    CodeImage whole = CodeImage::of_file(UNIT_CODE ".fatbin", keep);
    REQUIRE(whole.layout_of("many"));
    CHECK(whole.layout_of("many")->size() == 12);
    CHECK(!whole.layout_of("own"));
    std::string text = std::string(kPtxHead) + ".visible .entry own(.param .u32 a) { ret; }\n" +
                       ".visible .entry many(.param .u32 a) { ret; }\n";
    CodeImage other(text.c_str(), std::nullopt, keep);
    REQUIRE(other.layout_of("many"));
    CHECK(other.layout_of("many")->size() == 1);
}

// What is read of a function's text, and what is not taken for read.
#include "shim/code/ptx_text.h"

#include <doctest/doctest.h>

#include <string>

using namespace lms::code;

namespace {

// A view of `body`, which outlives it.
std::optional<PtxFunction> parsed(const std::string& body) {
    return parse_ptx_function({"k()", body, true});
}

// Whether each register is one everywhere in it.
bool is_flat(const std::string& body) {
    const auto function = parsed(body);
    REQUIRE(function);
    return function->is_flat;
}

}  // namespace

TEST_CASE("text: what no compiler writes is not taken for read") {
    for (const std::string odd :
         {"st .global .u32 [a], 1;", "@%p1 st .global.u32 [a], 1;", "ld.global.u32 %r1, v[1];",
          "mov.u32 %r2, !0;", "mov.u32 %r2, ! 1;", "mov.u32 %r2, - -4;", "mov.u32 %r2, 8+8;",
          "mov.u32 %r2, 8-4;", "mov.u32 %r2, -8+4;"}) {
        CAPTURE(odd);
        CHECK_FALSE(parsed(odd));
    }
    for (const std::string plain : {"st.global.u32 [a+8], 1;", "mov.u32 %r2, -4;", "mov.u64 %rd1, v+8;",
                                    "@!%p1 bra $L;", "setp.eq.u32 %p1|%p2, %r1, %r2;"}) {
        CAPTURE(plain);
        CHECK(parsed(plain));
    }
}

TEST_CASE("text: a name ends where another begins, without a blank as well") {
    const std::string body = ".reg.b32 %r<9>; mov.u32%r2,%r1;";
    const auto function = parsed(body);
    REQUIRE(function);
    REQUIRE(function->body.size() == 1);
    CHECK(function->body[0].opcode == "mov.u32");
    CHECK(function->body[0].operands.size() == 2);
    CHECK(function->bits[function->body[0].operands[0].names[0]] == 32);
}

TEST_CASE("text: a register is its own in each block, however it is declared") {
    for (const std::string reg : {".reg .b32 x;", ".reg.b32 x;"}) {
        CAPTURE(reg);
        CHECK_FALSE(is_flat(".reg .b32 x; {" + reg + " mov.u32 x, 0;}"));
        // Declared behind the block, in a loop.
        CHECK_FALSE(is_flat("$L: {" + reg + " mov.u32 x, 0;} .reg .b32 x; mov.u32 x, 1; bra $L;"));
        CHECK_FALSE(is_flat("{{" + reg + " mov.u32 x, 0;} " + reg + " mov.u32 x, 1;}"));
        // Blocks beside each other do not share it.
        CHECK(is_flat("{" + reg + " mov.u32 x, 0;} {" + reg + " mov.u32 x, 1;}"));
    }
}

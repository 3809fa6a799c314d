// The one table of PTX's opcodes, for all that follow values through a kernel. What is not in it may do
// anything with its operands.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace lms::code {

// What an instruction does with its operands.
enum class Operation : std::uint8_t {
    Other,
    Load,
    Store,
    Reduce,  // in memory
    Atomic,  // the same, and gives what was there
    Copy,    // within memory
    TensorMap,
    Matrix,
    CallFunction,
    Jump,  // gives nothing
    Move,
    ToSpace,  // an address between spaces
    Convert,
    Select,  // one of two
    Insert,  // bits of one into another
    Add,
    Subtract,
    Bitwise,
    Multiply,
    MultiplyAdd,
    FusedAdd,  // the same of floating point
    Scale,     // what gives no address whatever it is given, but for loaded ones
    ShiftLeft,
    Number,  // what gives a number whatever it is given
};

// What else is known of one. A set of these.
inline constexpr std::uint8_t kOnlyReads = 1;  // memory at its addresses, or none
inline constexpr std::uint8_t kNoAccess = 2;   // "[...]" is a handle of a texture or surface, or is not used
inline constexpr std::uint8_t kNotGlobal = 4;  // its addresses, unless it says so

struct OpcodeFacts {
    std::string_view root;
    Operation operation = Operation::Other;
    std::uint8_t also = 0;
};

inline constexpr auto kOpcodes = [] {
    using enum Operation;
    std::array table{
        OpcodeFacts{"activemask", Number},
        OpcodeFacts{"add", Add},
        OpcodeFacts{"and", Bitwise},
        OpcodeFacts{"atom", Atomic},
        OpcodeFacts{"bar", Jump},
        OpcodeFacts{"bfi", Insert},
        OpcodeFacts{"bfind", Number},
        OpcodeFacts{"bra", Jump},
        OpcodeFacts{"brx", Jump},
        OpcodeFacts{"call", CallFunction, kNotGlobal},
        OpcodeFacts{"clz", Number},
        OpcodeFacts{"cp", Copy},
        OpcodeFacts{"cvt", Convert},
        OpcodeFacts{"cvta", ToSpace},
        OpcodeFacts{"div", Scale},
        OpcodeFacts{"exit", Jump},
        OpcodeFacts{"fma", FusedAdd},
        OpcodeFacts{"fns", Number},
        OpcodeFacts{"isspacep", Number},
        OpcodeFacts{"ld", Load, kOnlyReads},
        OpcodeFacts{"ldmatrix", Other, kOnlyReads},
        OpcodeFacts{"ldu", Load, kOnlyReads},
        OpcodeFacts{"mad", MultiplyAdd},
        OpcodeFacts{"mov", Move},
        OpcodeFacts{"mul", Multiply},
        OpcodeFacts{"mul24", Scale},
        OpcodeFacts{"or", Bitwise},
        OpcodeFacts{"popc", Number},
        OpcodeFacts{"prefetch", Other, kOnlyReads | kNoAccess | kNotGlobal},
        OpcodeFacts{"prefetchu", Other, kOnlyReads | kNoAccess | kNotGlobal},
        OpcodeFacts{"red", Reduce},
        OpcodeFacts{"rem", Scale},
        OpcodeFacts{"ret", Jump},
        OpcodeFacts{"selp", Select},
        OpcodeFacts{"set", Number},
        OpcodeFacts{"setp", Number},
        OpcodeFacts{"shl", ShiftLeft},
        OpcodeFacts{"st", Store},
        OpcodeFacts{"sub", Subtract},
        OpcodeFacts{"suld", Other, kNoAccess},
        OpcodeFacts{"suq", Other, kNoAccess},
        OpcodeFacts{"sured", Other, kNoAccess},
        OpcodeFacts{"sust", Other, kNoAccess},
        OpcodeFacts{"tcgen05", Other, kNotGlobal},
        OpcodeFacts{"tensormap", TensorMap, kNoAccess},
        OpcodeFacts{"testp", Number},
        OpcodeFacts{"tex", Other, kOnlyReads | kNoAccess},
        OpcodeFacts{"tld4", Other, kOnlyReads | kNoAccess},
        OpcodeFacts{"txq", Other, kNoAccess},
        OpcodeFacts{"vote", Number},
        OpcodeFacts{"wmma", Matrix},
        OpcodeFacts{"xor", Bitwise},
    };
    return table;
}();
static_assert(std::ranges::is_sorted(kOpcodes, {}, &OpcodeFacts::root));

inline constexpr OpcodeFacts kUnknownOpcode{};
constexpr const OpcodeFacts& facts_of(std::string_view root) {
    const auto found = std::ranges::lower_bound(kOpcodes, root, {}, &OpcodeFacts::root);
    return found != kOpcodes.end() && found->root == root ? *found : kUnknownOpcode;
}

}  // namespace lms::code

// What an instruction computes, by the words of its opcode. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "shim/code/ptx_steps.h"

namespace lms::code {

using PtxWords = std::vector<std::string_view>;
PtxWords ptx_words(std::string_view opcode);

// Bits of "u32", "f16x2", "b128"; 0: no type.
unsigned ptx_bits(std::string_view type);
std::optional<IntegerType> ptx_integer_type(std::string_view word);
// What an integer of that type is, in a register that may be wider.
ValueRange ptx_loaded(std::string_view type);

// From so many sources; Nothing where it is none of the others, nor a load. Operands are not filled in.
PtxStep ptx_computes(const PtxWords& words, std::size_t sources);

}  // namespace lms::code

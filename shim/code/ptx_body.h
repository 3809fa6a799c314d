// A kernel and the functions that it calls, parsed, for analyses that follow values through them.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shim/code/ptx_kinds.h"
#include "shim/code/ptx_opcode.h"
#include "shim/code/ptx_text.h"

namespace lms::code {

struct PtxBody {
    PtxFunction function;
    std::vector<Opcode> opcodes;  // of its instructions
    std::vector<Kinds> kinds;     // by PtxName
};

// The kernel is the first.
struct PtxBodies {
    std::vector<PtxBody> bodies;
    std::unordered_map<std::string_view, std::size_t> ids;  // by the function's name
};

// call (returned), function, (arguments), prototype;
struct PtxCall {
    std::string_view function;  // empty: which one is not written there
    std::vector<PtxName> returned;
    std::vector<PtxName> arguments;
};
PtxCall call_of(const PtxModuleText& module, const PtxFunction& caller, const PtxInstruction& instruction);

// Functions of the CUDA runtime's device side that touch no memory of the program's.
inline bool is_harmless(const PtxModuleText& module, std::string_view function) {
    constexpr std::array<std::string_view, 4> kOfTheRuntime{"vprintf", "__assertfail", "malloc", "free"};
    if (std::ranges::find(kOfTheRuntime, function) == kOfTheRuntime.end()) return false;
    // The program may have its own of that name.
    const auto declared = module.functions.find(function);
    return declared == module.functions.end() || declared->second.body.data() == nullptr;
}

// Whether its addresses may be of global memory.
inline bool reaches_global(const Opcode& opcode) {
    if (opcode.in_space("global")) return true;
    if (opcode.also(kNotGlobal)) return false;
    return !opcode.in_space("shared") && !opcode.in_space("local") && !opcode.in_space("param") &&
           !opcode.in_space("const");
}

// Copies of what a tensor map names.
inline bool goes_by_tensor_map(const Opcode& opcode) {
    return opcode.is(Operation::Copy) && opcode.has("tensor");
}

// Puts an address into a tensor map.
inline bool makes_tensor_map(const Opcode& opcode) {
    return opcode.is(Operation::TensorMap) && opcode.has("global_address");
}

}  // namespace lms::code

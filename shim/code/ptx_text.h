// PTX text taken apart as far as a look at its addresses needs: functions, their instructions, and which
// names stand for what.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lms::code {

// Index of a name in its function: a register, a variable, a number, another function, a label. The elements
// of a vector ("v.x") are the vector, other than of the numbers of threads ("%tid.x").
using PtxName = std::uint32_t;

struct PtxOperand {
    // "[...]" has the first name in it, "{...}", "(...)" and "a|b" have all of theirs.
    std::vector<PtxName> names;
    bool is_address = false;   // "[...]"
    bool is_negative = false;  // "-1"
    bool is_negated = false;   // "!%p1"
    // Of "[name]", "[name+8]", "[name+-8]" and "name+8": bytes from there; nothing where it is written
    // otherwise, as what is to be computed ("~7").
    std::optional<std::int64_t> offset;
};

// "@%p1": done by the threads in which the predicate is so.
struct PtxGuard {
    PtxName predicate;
    bool when;
};

struct PtxInstruction {
    std::string_view opcode;  // with its modifiers: "ld.global.u64"
    std::vector<PtxOperand> operands;
    std::optional<PtxGuard> guard{};
};

// Where a variable is, or what else a name stands for.
enum class PtxSpace : std::uint8_t { Unknown, Global, Const, Shared, Local, Param, Function };

struct PtxParameter {
    PtxName name;
    bool is_pointer;        // it says ".ptr"
    std::size_t bytes;      // 0: of no size that is known here
    std::size_t alignment;  // bytes
};

struct PtxFunction {
    std::vector<PtxParameter> returns;
    std::vector<PtxParameter> parameters;
    std::vector<PtxInstruction> body;
    std::vector<std::string_view> names;              // by PtxName
    std::vector<PtxSpace> spaces;                     // by PtxName, of the variables the function declares
    std::vector<unsigned> bits;                       // by PtxName: of registers; 0: none, or not known
    std::unordered_map<PtxName, std::size_t> labels;  // the instruction that each stands before
    // A name of a register or label means one thing everywhere, and no register is used by its elements.
    bool is_flat = true;
};

// Views into `text` everywhere: it must stay.
struct PtxModuleText {
    struct Function {
        std::string_view header;  // from after ".entry" or ".func" to its body
        std::string_view body;    // within its braces; empty: declared here, defined elsewhere
        bool is_entry;
    };
    std::unordered_map<std::string_view, Function> functions;
    std::unordered_map<std::string_view, PtxSpace> variables;  // of the module
};

// An integer that is written in the text; nothing for registers and floating point.
std::optional<std::int64_t> ptx_integer(std::string_view text);

// Finds the functions and variables; nothing where the text is not PTX as far as that goes. Looks at each
// character once.
std::optional<PtxModuleText> index_ptx(std::string_view text);

// Takes one function apart; nothing where it does not follow, as where a name means something else within
// a block.
std::optional<PtxFunction> parse_ptx_function(const PtxModuleText::Function& function);

// The same of what stands before its body.
std::optional<PtxFunction> parse_ptx_header(const PtxModuleText::Function& function);

}  // namespace lms::code

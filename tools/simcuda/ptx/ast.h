// What the parser makes of PTX text. All names are slices of Module::source or one of Module::names, which
// live as long as the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simcuda/ptx/program.h"
#include "tools/simcuda/ptx/types.h"

namespace simcuda::ptx {

struct Register {
    std::string c_name;  // unique within its function
    Type type = Type::None;
    bool as_float = false;  // an untyped register that is kept in a C float or double
};

// A declared array of bytes in any state space; parameters of functions and calls are variables too.
struct Declaration {
    std::string_view name;
    std::string c_name;  // unique within its function or module
    Space space = Space::Global;
    Type type = Type::None;  // of an element
    std::uint64_t bytes = 0;
    std::uint64_t alignment = 1;
    bool external = false;
    bool managed = false;
    bool opaque = false;       // a texture, sampler or surface reference
    bool in_register = false;  // a function's .reg parameter
    int parameter_register = -1;
    std::vector<std::byte> initial;
    std::vector<Relocation> relocations;

    std::uint64_t offset = 0;  // kernel parameter: in the parameter block; module variable: its index
    bool at_module_scope = false;
};

struct Operand {
    enum class Kind {
        Register,
        Integer,
        Real,     // `integer` holds the bits; `real_bytes` says of which type (8 for decimal literals)
        Name,     // label, function, variable or special register, plus `offset`
        Address,  // [register, variable or integer, plus offset]
        Vector,   // {a, b}
        Pair,     // a|b
        List,     // (a, b)
        Sink,     // _
    };
    Kind kind = Kind::Sink;
    bool negated = false;  // !p, -x
    int reg = -1;          // Register; base of an Address
    unsigned real_bytes = 0;
    int scope = 0;
    std::uint64_t integer = 0;
    std::int64_t offset = 0;
    std::string_view name;
    const Declaration* declaration = nullptr;  // what `name` is, if a variable
    int label = -1;                            // what `name` is, if a label
    std::vector<Operand> parts;                // elements; coordinates behind the base of an Address
};

struct Instruction {
    std::string_view text;  // the whole opcode, "setp.lt.s32"
    std::string_view opcode;
    std::vector<std::string_view> modifiers;  // all that follows, less the types
    std::vector<Type> types;
    std::vector<Operand> operands;
    int predicate = -1;  // register
    bool predicate_negated = false;
    bool malformed = false;  // operands of a form the parser does not know
    int line = 0;

    bool has(std::string_view modifier) const {
        for (std::string_view m : modifiers)
            if (m == modifier) return true;
        return false;
    }
    Type type() const { return types.empty() ? Type::None : types[0]; }
};

struct Statement {
    int label = -1;  // a label here, or else an instruction
    Instruction instruction;
};

struct Label {
    std::string c_name;
    std::vector<Operand> targets;  // of a .branchtargets list
};

struct Function {
    std::string_view name;
    bool entry = false;
    bool defined = false;
    std::uint32_t max_threads = 1024;
    std::uint32_t cluster[3] = {0, 0, 0};  // .reqnctapercluster; 0: not said
    std::uint32_t max_cluster = 0;         // .maxclusterrank; 0: not said
    bool explicit_cluster = false;
    std::vector<Declaration*> parameters;
    std::vector<Declaration*> results;
    std::deque<Declaration> declarations;
    std::vector<Register> registers;
    std::vector<Label> labels;
    std::vector<Statement> body;
};

struct Module {
    std::string source;
    unsigned version = 0, target = 0;   // 78 is 7.8, 90 sm_90; 0: not said
    std::deque<std::string> names;      // that stand nowhere in the source
    std::deque<Declaration> variables;  // .global, .const and .shared at module scope
    std::vector<std::unique_ptr<Function>> functions;

    const Function* find_function(std::string_view name) const {
        for (const auto& function : functions)
            if (function->name == name) return function.get();
        return nullptr;
    }
    const Declaration* find_variable(std::string_view name) const {
        for (const Declaration& variable : variables)
            if (variable.name == name) return &variable;
        return nullptr;
    }
};

}  // namespace simcuda::ptx

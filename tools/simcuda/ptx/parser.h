// PTX text -> Module. The grammar is the PTX ISA's; what an instruction means is left to the emitter, so an
// instruction with operands of an unknown form is kept (marked malformed) and does not spoil its module.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tools/simcuda/ptx/ast.h"
#include "tools/simcuda/ptx/lexer.h"

namespace simcuda::ptx {

struct SyntaxError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Parser {
  public:
    // Throws SyntaxError, naming the line.
    static std::unique_ptr<Module> parse(std::string_view source);

  private:
    // `.reg .f32 %f<163>` declares %f0 to %f162; registers are made when first named.
    struct RegisterRange {
        Type type;
        std::uint64_t count;
    };
    struct Scope {
        int parent = -1;
        std::unordered_map<std::string_view, int> registers;
        std::unordered_map<std::string_view, RegisterRange> ranges;
        std::unordered_map<std::string_view, std::vector<int>> vectors;  // their elements
        std::unordered_map<std::string_view, Declaration*> declarations;
        std::unordered_map<std::string_view, int> labels;
    };

    explicit Parser(Module& module) : module_(module), lexer_(module.source) { advance(); }

    // parser.cpp: tokens, the module and its functions
    void parse_module();
    void parse_function(bool entry);
    void parse_parameters(std::vector<Declaration*>& into, std::deque<Declaration>& owner, bool entry);
    void parse_performance_directives(Function& function);
    void parse_body(Function& function);
    void parse_block();
    void parse_statement();
    void parse_labelled(std::string_view name);
    void resolve_labels();
    void resolve_labels(Operand& operand);
    void skip_line();
    void skip_braces();
    void skip_statement();
    void advance();
    Token peek() const;
    bool accept(char punctuation);
    void expect(char punctuation);
    std::string_view expect_word();
    std::uint64_t expect_integer();
    [[noreturn]] void fail(const std::string& what) const;

    // parse_declarations.cpp
    struct DeclarationHead {
        Space space;
        Type type = Type::None;
        std::uint64_t alignment = 0;
        std::uint64_t vector = 1;
        bool external = false;
        bool managed = false;
        bool opaque = false;
    };
    DeclarationHead parse_declaration_head(Space space);
    void parse_variables(Space space, bool external);
    void parse_declarator(const DeclarationHead& head, Declaration& into);
    void parse_initialiser(Declaration& into);
    void parse_initial_value(Declaration& into, std::uint64_t& at);
    void declare(Declaration& variable, bool at_module_scope);
    void parse_registers();
    void add_vector(std::string_view name, const DeclarationHead& head);
    std::string unique_name(std::string_view name) const;

    // parse_instructions.cpp
    void parse_instruction();
    void check_target(const Instruction& instruction) const;
    Operand parse_operand();
    Operand parse_primary();
    Operand parse_word();
    Operand parse_address();
    Operand parse_list(Operand::Kind kind, char end);
    Operand parse_number(bool negative);
    std::int64_t parse_offset();
    int find_register(std::string_view name);
    const std::vector<int>* find_vector(std::string_view name) const;
    Declaration* find_declaration(std::string_view name) const;
    int add_register(int scope, std::string_view name, Type type);

    Module& module_;
    Lexer lexer_;
    Token token_;
    Function* function_ = nullptr;  // being parsed, if any
    std::vector<Scope> scopes_;
    int scope_ = -1;
};

// Reads an integer or floating-point token; `real_bytes` is 0, 4 or 8. False when it is neither.
bool parse_number_token(std::string_view text, std::uint64_t& bits, unsigned& real_bytes);

}  // namespace simcuda::ptx

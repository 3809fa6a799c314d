// What values in PTX begin with: sums of a kernel's parameters, each times a constant, and of a constant, as
// far as the instructions show it; what threads' numbers, loops and memory add is left out. An address so
// tells where an access begins: "base + 8 * lower", of an array whose first section is elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "shim/code/parameter.h"
#include "shim/code/ptx_body.h"

namespace lms::code {

// A part of a kernel's parameter block, as a number, times a constant.
struct LinearTerm {
    std::size_t offset;  // bytes from the start of the block
    std::size_t bytes;   // 4 or 8
    bool is_signed;      // where it is of 4 bytes
    std::int64_t factor;

    friend bool operator==(const LinearTerm&, const LinearTerm&) = default;
};

struct Linear {
    std::int64_t constant = 0;
    std::vector<LinearTerm> terms;  // by offset, each once, of other factors than 0

    friend bool operator==(const Linear&, const Linear&) = default;
};

Linear added(const Linear& a, const Linear& b);
Linear scaled(const Linear& a, std::int64_t factor);
// What is true of both; of constants that differ it is a's.
Linear common(const Linear& a, const Linear& b);

// Of all values of a kernel and the functions it calls.
class PtxLinears {
  public:
    // `places`: of the kernel's parameters, by PtxName. Both outlive it.
    PtxLinears(const PtxModuleText& module, const PtxBodies& kernel,
               const std::vector<std::optional<Parameter>>& places);

    // Of what an operand "[...]" of one of the functions means.
    Linear of_address(std::size_t body, const PtxOperand& operand) const;

  private:
    // Nothing yet: no instruction that was looked at gives it.
    using Value = std::optional<Linear>;

    void leave_open(std::size_t body);
    void pass(std::size_t body, const Opcode& opcode, const PtxInstruction& instruction);
    void store_parameter(std::size_t body, const PtxInstruction& instruction);
    void load_parameter(std::size_t body, const Opcode& opcode, const PtxInstruction& instruction);
    void call(std::size_t body, const PtxInstruction& instruction);
    Value computed(std::size_t body, const Opcode& opcode, const PtxInstruction& instruction) const;
    Value value(std::size_t body, const PtxOperand& operand) const;
    void learn(std::size_t body, PtxName name, const Value& value);

    const PtxModuleText& module_;
    const PtxBodies& kernel_;
    const std::vector<std::optional<Parameter>>& places_;
    std::vector<std::vector<Value>> values_;  // by body and PtxName
    bool grown_ = false;
};

}  // namespace lms::code

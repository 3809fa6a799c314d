// Propagates facts about registers through moves and selections.
#include "tools/simcuda/ptx/registers.h"

#include <algorithm>
#include <numeric>

namespace simcuda::ptx {
namespace {

// Instructions that hand a value on as it is.
bool passes_on(const Instruction& instruction) {
    return instruction.opcode == "mov" || instruction.opcode == "selp" || instruction.opcode == "slct";
}

bool is_memory(const Instruction& instruction) {
    return instruction.opcode == "ld" || instruction.opcode == "ldu" || instruction.opcode == "st";
}

bool is_register(const Operand& operand) {
    return operand.kind == Operand::Kind::Register;
}

template <typename F>
void for_each_instruction(const Function& function, F&& visit) {
    for (const Statement& statement : function.body)
        if (statement.label < 0) visit(statement.instruction);
}

}  // namespace

std::vector<bool> computed_f32_registers(const Function& function) {
    std::vector<bool> computed(function.registers.size());
    for_each_instruction(function, [&](const Instruction& instruction) {
        if (instruction.operands.empty() || !is_register(instruction.operands[0])) return;
        if (passes_on(instruction) || is_memory(instruction) || instruction.opcode == "atom") return;
        // A bf16 is the upper half of an f32, NaN or not.
        if (instruction.opcode == "cvt" && instruction.types.back() == Type::Bf16) return;
        if (instruction.type() == Type::F32)
            computed[static_cast<std::size_t>(instruction.operands[0].reg)] = true;
    });
    for (bool changed = true; changed;) {
        changed = false;
        for_each_instruction(function, [&](const Instruction& instruction) {
            if (!passes_on(instruction) || instruction.operands.empty() ||
                !is_register(instruction.operands[0]))
                return;
            const auto target = static_cast<std::size_t>(instruction.operands[0].reg);
            for (std::size_t i = 1; i < std::min<std::size_t>(instruction.operands.size(), 3); ++i) {
                const Operand& source = instruction.operands[i];
                if (computed[target] || !is_register(source) ||
                    !computed[static_cast<std::size_t>(source.reg)])
                    continue;
                // What arrives in an integer register has been corrected on the way.
                const Register& reg = function.registers[target];
                if (reg.type != Type::F32 && !reg.as_float) continue;
                computed[target] = true;
                changed = true;
            }
        });
    }
    return computed;
}

void choose_float_registers(Function& function) {
    // Registers that values are moved between share one verdict: union-find over them.
    std::vector<int> parent(function.registers.size());
    std::iota(parent.begin(), parent.end(), 0);
    const auto root = [&](int reg) {
        while (parent[static_cast<std::size_t>(reg)] != reg)
            reg = parent[static_cast<std::size_t>(reg)] =
                parent[static_cast<std::size_t>(parent[static_cast<std::size_t>(reg)])];
        return reg;
    };
    const auto untyped = [&](const Operand& operand) {
        if (!is_register(operand)) return false;
        const Type type = function.registers[static_cast<std::size_t>(operand.reg)].type;
        return type == Type::B32 || type == Type::B64;
    };
    std::vector<int> votes(function.registers.size());
    const auto vote = [&](const Operand& operand, int weight) {
        if (untyped(operand)) votes[static_cast<std::size_t>(operand.reg)] += weight;
    };
    for_each_instruction(function, [&](const Instruction& instruction) {
        const auto& operands = instruction.operands;
        for (const Operand& operand : operands)
            if (operand.kind == Operand::Kind::Address && operand.reg >= 0)
                votes[static_cast<std::size_t>(operand.reg)] -= 4;
        if (is_memory(instruction)) {
            const bool real = instruction.type() == Type::F32 || instruction.type() == Type::F64;
            for (const Operand& operand : operands)
                for (const Operand& part : operand.parts) vote(part, real);
            for (const Operand& operand : operands) vote(operand, real);
            return;
        }
        if (passes_on(instruction)) {
            for (std::size_t i = 1; i < operands.size() && i < 3; ++i)
                if (untyped(operands[0]) && untyped(operands[i]))
                    parent[static_cast<std::size_t>(root(operands[0].reg))] = root(operands[i].reg);
            return;
        }
        // The destination has the first type, sources the last; fma and the like have but one.
        for (std::size_t i = 0; i < operands.size(); ++i) {
            const Type type = instruction.types.empty() ? Type::None
                              : i == 0                  ? instruction.types.front()
                                                        : instruction.types.back();
            vote(operands[i], type == Type::F32 || type == Type::F64 ? 4 : -4);
        }
    });
    std::vector<int> total(votes.size());
    for (std::size_t i = 0; i < votes.size(); ++i)
        total[static_cast<std::size_t>(root(static_cast<int>(i)))] += votes[i];
    for (std::size_t i = 0; i < votes.size(); ++i) {
        Register& reg = function.registers[i];
        if (reg.type == Type::B32 || reg.type == Type::B64)
            reg.as_float = total[static_cast<std::size_t>(root(static_cast<int>(i)))] > 0;
    }
}

}  // namespace simcuda::ptx

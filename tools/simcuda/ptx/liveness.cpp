// Liveness by the usual walk back through the body, until nothing changes at any label.
#include "tools/simcuda/ptx/liveness.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace simcuda::ptx {
namespace {

void for_each_register(const Operand& operand, const std::function<void(int)>& visit) {
    if (operand.reg >= 0) visit(operand.reg);
    for (const Operand& part : operand.parts) for_each_register(part, visit);
}

// Whether the first operand is what the instruction writes, as far as it names registers.
bool writes_first(const Instruction& instruction) {
    static constexpr std::string_view kReadAll[] = {"bar", "barrier", "bra", "brx", "call", "nanosleep"};
    if (instruction.operands.empty() || instruction.operands[0].kind == Operand::Kind::Address) return false;
    return std::find(std::begin(kReadAll), std::end(kReadAll), instruction.opcode) == std::end(kReadAll);
}

}  // namespace

Liveness::Liveness(const Function& function)
    : function_(function), at_label_(function.labels.size(), Set(function.registers.size())) {
    for (bool changed = true; changed;) {
        changed = false;
        Set live(function.registers.size());
        for (std::size_t i = function.body.size(); i-- > 0;) {
            pass(i, live);
            if (function.body[i].label < 0) continue;
            Set& known = at_label_[static_cast<std::size_t>(function.body[i].label)];
            changed |= known != live;
            known = live;
        }
    }
}

void Liveness::pass(std::size_t statement, Set& live) const {
    if (function_.body[statement].label >= 0) return;
    const Instruction& instruction = function_.body[statement].instruction;
    const std::string_view opcode = instruction.opcode;
    const bool always = instruction.predicate < 0;
    const auto join = [&](int label) {
        if (label < 0) return;
        const Set& there = at_label_[static_cast<std::size_t>(label)];
        std::transform(live.begin(), live.end(), there.begin(), live.begin(), std::logical_or<>());
    };
    const bool leaves = opcode == "bra" || opcode == "brx" || opcode == "ret" || opcode == "exit";
    if (leaves && always) live.assign(live.size(), false);
    if (opcode == "bra" && !instruction.operands.empty()) join(instruction.operands[0].label);
    if (opcode == "brx" && instruction.operands.back().label >= 0)
        for (const Operand& target :
             function_.labels[static_cast<std::size_t>(instruction.operands.back().label)].targets)
            join(target.label);
    const bool writes = writes_first(instruction);
    const auto set = [&](bool is) {
        return [&live, is](int reg) { live[static_cast<std::size_t>(reg)] = is; };
    };
    if (writes && always) for_each_register(instruction.operands[0], set(false));
    for (std::size_t i = writes ? 1 : 0; i < instruction.operands.size(); ++i)
        for_each_register(instruction.operands[i], set(true));
    if (!always) set(true)(instruction.predicate);
}

std::vector<int> Liveness::around(std::size_t statement) const {
    std::size_t next = statement + 1;
    while (next < function_.body.size() && function_.body[next].label < 0) ++next;
    Set live(function_.registers.size());
    if (next < function_.body.size()) live = at_label_[static_cast<std::size_t>(function_.body[next].label)];
    while (next-- > statement + 1) pass(next, live);
    // It may be about to begin, or have all but written its result.
    Set before = live;
    pass(statement, before);
    std::transform(live.begin(), live.end(), before.begin(), live.begin(), std::logical_or<>());
    for (const Operand& operand : function_.body[statement].instruction.operands)
        for_each_register(operand, [&](int reg) { live[static_cast<std::size_t>(reg)] = true; });
    std::vector<int> registers;
    for (std::size_t reg = 0; reg < live.size(); ++reg)
        if (live[reg]) registers.push_back(static_cast<int>(reg));
    return registers;
}

}  // namespace simcuda::ptx

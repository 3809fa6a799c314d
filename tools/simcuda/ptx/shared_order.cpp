// Whether something has been stored since the last meeting, forward through the body until nothing changes at
// any label.
#include "tools/simcuda/ptx/shared_order.h"

#include <utility>
#include <vector>

namespace simcuda::ptx {
namespace {

class Walk {
  public:
    Walk(const Function& function, const std::function<bool(const Instruction&)>& meets,
         const std::function<bool(const Instruction&)>& stores)
        : function_(function), meets_(meets), stores_(stores), at_label_(function.labels.size()) {
        while (pass()) {
        }
    }

    std::set<const Instruction*> found() { return std::move(found_); }

  private:
    bool pass() {
        changed_ = false;
        bool stored = !function_.entry;  // a caller may have
        for (const Statement& statement : function_.body) {
            if (statement.label >= 0) {
                come_to(statement.label, stored);
                stored = at_label_[static_cast<std::size_t>(statement.label)];
                continue;
            }
            const Instruction& instruction = statement.instruction;
            if (stored && loads_shared(instruction) && !meets_(instruction)) found_.insert(&instruction);
            stored = behind(instruction, stored);
        }
        return changed_;
    }

    bool behind(const Instruction& instruction, bool stored) {
        if (instruction.opcode == "bra" || instruction.opcode == "brx") branch(instruction, stored);
        if (stores_(instruction)) return true;
        // Who does not carry it out does not meet anybody.
        if (instruction.predicate >= 0) return stored;
        const bool leaves = instruction.opcode == "bra" || instruction.opcode == "brx" ||
                            instruction.opcode == "ret" || instruction.opcode == "exit";
        // At a load that comes behind a store all meet, and at others nothing is to be waited for.
        return stored && !leaves && !meets_(instruction) && !loads_shared(instruction);
    }

    void branch(const Instruction& instruction, bool stored) {
        if (instruction.operands.empty()) return;
        const int label = instruction.operands.back().label;
        if (label < 0) return;
        if (instruction.opcode == "bra") return come_to(label, stored);
        for (const Operand& target : function_.labels[static_cast<std::size_t>(label)].targets)
            if (target.label >= 0) come_to(target.label, stored);
    }

    void come_to(int label, bool stored) {
        if (!stored || at_label_[static_cast<std::size_t>(label)]) return;
        at_label_[static_cast<std::size_t>(label)] = changed_ = true;
    }

    static bool loads_shared(const Instruction& instruction) {
        return instruction.opcode == "ld" && (instruction.has("shared") || instruction.has("shared::cta"));
    }

    const Function& function_;
    const std::function<bool(const Instruction&)>& meets_;
    const std::function<bool(const Instruction&)>& stores_;
    std::vector<bool> at_label_;
    std::set<const Instruction*> found_;
    bool changed_ = false;
};

}  // namespace

std::set<const Instruction*> loads_behind_stores(const Function& function,
                                                 const std::function<bool(const Instruction&)>& meets,
                                                 const std::function<bool(const Instruction&)>& stores) {
    return Walk(function, meets, stores).found();
}

}  // namespace simcuda::ptx

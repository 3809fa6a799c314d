#include "shim/code/ptx_steps.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "shim/code/ptx_compute.h"
#include "shim/code/ptx_layouts.h"
#include "shim/code/ptx_loops.h"

namespace lms::code {

namespace {

// What a look at a launch may cost: beyond these the kernel is not looked at.
constexpr std::size_t kMostInstructions = 20000, kMostCells = 1 << 20;

// Bytes at the address; 0 where that does not show.
std::uint64_t bytes_at(const Opcode& opcode, const PtxFunction& function, const PtxInstruction& instruction) {
    if (opcode.is(Operation::Copy)) {
        // "cp.async.cg.shared.global [to], [from], 16"
        if (opcode.has("bulk") || instruction.operands.size() < 3) return 0;
        const PtxOperand& bytes = instruction.operands[2];
        const auto number =
            bytes.names.size() == 1 ? ptx_integer(function.names[bytes.names[0]]) : std::nullopt;
        return static_cast<std::uint64_t>(number.value_or(0));
    }
    if (!opcode.is(Operation::Load) && !opcode.is(Operation::Store) && !opcode.is(Operation::Atomic) &&
        !opcode.is(Operation::Reduce))
        return 0;
    std::uint64_t bits = 0;
    std::uint64_t count = 1;
    for (const std::string_view word : ptx_words(instruction.opcode)) {
        bits = std::max<std::uint64_t>(bits, ptx_bits(word));
        if (word == "v2") count = 2;
        if (word == "v4") count = 4;
        if (word == "v8") count = 8;
    }
    return bits / 8 * count;
}

class Builder {
  public:
    Builder(const PtxModuleText& module, const PtxBodies& kernel, PtxFlow flow)
        : module_(module), body_(kernel.bodies[0]), function_(body_.function) {
        result_.flow = std::move(flow);
        defined_.resize(function_.names.size());
    }

    std::optional<PtxSteps> build(std::span<const SeenAccess> accesses) {
        const auto layout = layout_of(function_.parameters);
        if (!layout || !find_definitions()) return std::nullopt;
        for (std::size_t i = 0; i < layout->size(); ++i)
            parameters_[function_.parameters[i].name] = (*layout)[i].offset;
        find_parameter_addresses();
        for (const SeenAccess& access : accesses) by_instruction_[access.instruction].push_back(&access);
        want(accesses);
        if (result_.registers * result_.flow.blocks().size() > kMostCells) return std::nullopt;
        for (std::uint32_t block = 0; block < result_.flow.blocks().size(); ++block) fill(block);
        set_thread_numbers();
        result_.loops = loops_of(result_);
        return std::move(result_);
    }

  private:
    // ------------------------------------------------------------ which registers count

    bool gives_value(std::size_t at) const {
        const PtxInstruction& instruction = function_.body[at];
        const Opcode& opcode = body_.opcodes[at];
        return !instruction.operands.empty() && !instruction.operands[0].is_address &&
               // "bar.red.popc.u32 to, ..."
               (!opcode.is(Operation::Jump) || opcode.has("red")) && !opcode.is(Operation::Reduce) &&
               !(opcode.is(Operation::CallFunction) && instruction.operands.size() < 2);
    }

    bool find_definitions() {
        for (std::size_t at = 0; at < function_.body.size(); ++at) {
            const PtxInstruction& instruction = function_.body[at];
            if (body_.opcodes[at].is(Operation::CallFunction) && !reaches_nothing(instruction)) return false;
            // It gives two values.
            if (instruction.opcode.starts_with("tcgen05.ld.red")) return false;
            // A tensor map that is made here leads to what other instructions copy.
            if (body_.opcodes[at].is(Operation::TensorMap)) return false;
            if (!gives_value(at)) continue;
            for (const PtxName name : instruction.operands[0].names) defined_[name].push_back(at);
        }
        return true;
    }

    // Text that is printed may be memory of the program's.
    bool reaches_nothing(const PtxInstruction& call) const {
        const std::string_view function = call_of(module_, function_, call).function;
        return function != "vprintf" && is_harmless(module_, function);
    }

    // Registers that are nothing but an address among the parameters, from which these are loaded.
    void find_parameter_addresses() {
        for (bool more = true; std::exchange(more, false);) {
            for (PtxName name = 0; name < defined_.size(); ++name) {
                if (defined_[name].size() != 1 || parameter_addresses_.contains(name)) continue;
                const auto address = parameter_address(defined_[name][0]);
                if (address) parameter_addresses_[name] = *address;
                more |= address.has_value();
            }
        }
    }

    // "mov to, parameter", "add to, address, 8"
    std::optional<std::int64_t> parameter_address(std::size_t at) const {
        const PtxInstruction& instruction = function_.body[at];
        const Opcode& opcode = body_.opcodes[at];
        const auto& operands = instruction.operands;
        if (operands.size() < 2 || instruction.guard || operands[1].is_address ||
            operands[1].names.size() != 1)
            return std::nullopt;
        const auto begin = begin_of(operands[1].names[0]);
        if (!begin || !operands[1].offset) return std::nullopt;
        if (opcode.is(Operation::Move) && operands.size() == 2) return *begin + *operands[1].offset;
        if (!opcode.is(Operation::Add) || operands.size() != 3 || operands[2].names.size() != 1)
            return std::nullopt;
        const auto added = ptx_integer(function_.names[operands[2].names[0]]);
        if (!added) return std::nullopt;
        return *begin + (operands[2].is_negative ? -*added : *added);
    }

    // Where the parameter is, or what such a register leads to, in the parameter block.
    std::optional<std::int64_t> begin_of(PtxName name) const {
        if (const auto parameter = parameters_.find(name); parameter != parameters_.end())
            return static_cast<std::int64_t>(parameter->second);
        if (const auto address = parameter_addresses_.find(name); address != parameter_addresses_.end())
            return address->second;
        return std::nullopt;
    }

    // All that addresses, and the ways through the kernel, are computed from.
    void want(std::span<const SeenAccess> accesses) {
        std::vector<PtxName> open;
        const auto add = [&](PtxName name) {
            if (ids_.contains(name) || ptx_integer(function_.names[name])) return;
            ids_[name] = static_cast<RegisterId>(result_.registers++);
            open.push_back(name);
        };
        for (const SeenAccess& access : accesses) {
            const PtxInstruction& instruction = function_.body[access.instruction];
            for (const PtxName name : instruction.operands[access.operand].names) add(name);
            if (instruction.guard) add(instruction.guard->predicate);
        }
        for (const FlowBlock& block : result_.flow.blocks()) {
            for (const FlowEdge& edge : block.next)
                if (edge.guard) add(edge.guard->predicate);
        }
        while (!open.empty()) {
            const PtxName name = open.back();
            open.pop_back();
            for (const std::size_t at : defined_[name]) {
                const PtxInstruction& instruction = function_.body[at];
                if (instruction.guard) add(instruction.guard->predicate);
                if (step_of(at).what == PtxCompute::Nothing) continue;
                for (std::size_t i = 1; i < instruction.operands.size(); ++i) {
                    for (const PtxName from : instruction.operands[i].names)
                        if (!instruction.operands[i].is_address) add(from);
                }
            }
        }
    }

    // ------------------------------------------------------------ one instruction

    PtxStepOperand operand(const PtxOperand& text) const {
        PtxStepOperand result;
        result.when = !text.is_negated;
        const auto number = ptx_integer(function_.names[text.names[0]]);
        if (number) {
            result.number =
                text.is_negative ? subtract(64, ValueRange::of(0), ValueRange::of(*number)).lo : *number;
        } else if (const auto known = ids_.find(text.names[0]); known != ids_.end()) {
            result.reg = known->second;
        }
        return result;
    }

    // Whether it is a register or a number, and no address of a variable.
    bool is_plain(const PtxOperand& text) const {
        if (text.is_address || text.names.size() != 1 || text.offset != 0) return false;
        const PtxName name = text.names[0];
        return ptx_integer(function_.names[name]) ||
               (!text.is_negative && function_.spaces[name] == PtxSpace::Unknown &&
                !module_.variables.contains(function_.names[name]) &&
                !module_.functions.contains(function_.names[name]));
    }

    // `element`: of a vector that is loaded.
    PtxStep step_of(std::size_t at, std::size_t element = 0) const {
        const PtxInstruction& instruction = function_.body[at];
        const PtxWords words = ptx_words(instruction.opcode);
        const auto& operands = instruction.operands;
        PtxStep step;
        if (body_.opcodes[at].is(Operation::Load)) {
            step.range = ptx_loaded(words.back());
            load(words, operands, element, step);
            return step;
        }
        if (operands.size() < 2 || operands[0].names.size() != 1) return step;
        const auto sources = std::span(operands).subspan(1);
        if (!std::ranges::all_of(sources, [&](const PtxOperand& each) { return is_plain(each); }))
            return step;
        step = ptx_computes(words, sources.size());
        if (step.what == PtxCompute::Nothing) return step;
        if (!are_of_its_bits(instruction, step)) return PtxStep{};
        for (std::size_t i = 0; i < std::min<std::size_t>(sources.size(), 3); ++i)
            step.from[i] = operand(sources[i]);
        if (step.what == PtxCompute::Compare && sources.size() == 3) step.beside = operand(sources[2]);
        step.cuts = step.what == PtxCompute::Convert && !has_bits(sources[0], step.type.bits);
        return step;
    }

    bool has_bits(const PtxOperand& text, unsigned bits) const {
        return ptx_integer(function_.names[text.names[0]]) || function_.bits[text.names[0]] == bits;
    }

    // What is converted to a wider register is extended there, which is not followed.
    bool are_of_its_bits(const PtxInstruction& instruction, const PtxStep& step) const {
        const auto& operands = instruction.operands;
        const unsigned bits = step.type.bits;
        const auto are = [&](unsigned result, unsigned a, unsigned b, unsigned c) {
            const unsigned all[] = {result, a, b, c};
            for (std::size_t i = 0; i < std::min<std::size_t>(operands.size(), 4); ++i)
                if (!has_bits(operands[i], all[i])) return false;
            return true;
        };
        switch (step.what) {
            case PtxCompute::Move:
                return has_bits(operands[0], bits) &&
                       (has_bits(operands[1], bits) || (bits >= 32 && thread_number(operands[1].names[0])));
            case PtxCompute::Convert:
                return has_bits(operands[0], step.to.bits);
            case PtxCompute::Compare:
            case PtxCompute::Both:
            case PtxCompute::Either:
            case PtxCompute::Same:
                return step.what == PtxCompute::Compare ? are(1, bits, bits, 1) : are(1, 1, 1, 1);
            case PtxCompute::Select:
                return are(bits, bits, bits, 1);
            case PtxCompute::ShiftLeft:
            case PtxCompute::ShiftRight:
                return are(bits, bits, 32, 0);
            case PtxCompute::Extract:
                return are(bits, bits, 32, 32);
            case PtxCompute::MultiplyWide:
            case PtxCompute::MultiplyAddWide:
                return are(2 * bits, bits, bits, 2 * bits);
            default:
                return are(bits, bits, bits, bits);
        }
    }

    void load(const PtxWords& words, const std::vector<PtxOperand>& operands, std::size_t element,
              PtxStep& step) const {
        if (std::ranges::find(words, "param") == words.end() || operands.size() != 2) return;
        const auto type = ptx_integer_type(words.back());
        const PtxOperand& from = operands[1];
        const bool is_vector = std::ranges::any_of(
            words, [](std::string_view word) { return word == "v2" || word == "v4" || word == "v8"; });
        // One register may have all elements.
        if (is_vector != (operands[0].names.size() > 1)) return;
        if (!type || !from.offset || from.names.size() != 1) return;
        const auto begin = begin_of(from.names[0]);
        if (!begin || *begin + *from.offset < 0) return;
        step.what = PtxCompute::Input;
        step.type = *type;
        step.offset = *begin + *from.offset + static_cast<std::int64_t>(element * type->bits / 8);
    }

    std::optional<PtxStepGuard> guard_of(const std::optional<PtxGuard>& guard) const {
        if (!guard) return std::nullopt;
        return PtxStepGuard{ids_.at(guard->predicate), guard->when};
    }

    void fill(std::uint32_t number) {
        const FlowBlock& block = result_.flow.blocks()[number];
        std::vector<PtxStep> steps;
        for (std::size_t at = block.begin; at < block.end; ++at) {
            const PtxInstruction& instruction = function_.body[at];
            if (const auto seen = by_instruction_.find(at); seen != by_instruction_.end()) {
                for (const SeenAccess* each : seen->second) steps.push_back(access(*each));
            }
            if (!gives_value(at)) continue;
            const std::vector<PtxName>& names = instruction.operands[0].names;
            for (std::size_t i = 0; i < names.size(); ++i) {
                const auto id = ids_.find(names[i]);
                if (id == ids_.end()) continue;
                PtxStep step = step_of(at, i);
                if (step.what == PtxCompute::Input) step.number = input(step);
                step.result = id->second;
                step.guard = guard_of(instruction.guard);
                steps.push_back(step);
            }
        }
        result_.blocks.push_back(std::move(steps));
        auto& edges = result_.edges.emplace_back();
        for (const FlowEdge& edge : block.next) edges.push_back(guard_of(edge.guard));
    }

    std::uint32_t input(const PtxStep& step) {
        const Parameter place{static_cast<std::size_t>(step.offset), step.type.bits / 8};
        const auto known = std::ranges::find(result_.inputs, place);
        if (known != result_.inputs.end()) return static_cast<std::uint32_t>(known - result_.inputs.begin());
        result_.inputs.push_back(place);
        return static_cast<std::uint32_t>(result_.inputs.size() - 1);
    }

    PtxStep access(const SeenAccess& seen) {
        const PtxInstruction& instruction = function_.body[seen.instruction];
        const PtxOperand& address = instruction.operands[seen.operand];
        PtxStep step;
        step.what = PtxCompute::Reach;
        step.number = static_cast<std::uint32_t>(result_.accesses.size());
        step.guard = guard_of(instruction.guard);
        const bool plain = address.names.size() == 1 && address.offset && !is_variable(address.names[0]) &&
                           has_bits(address, 64);
        if (plain) {
            step.from[0] = operand(address);
            step.offset = *address.offset;
        }
        result_.accesses.push_back(
            {plain ? bytes_at(body_.opcodes[seen.instruction], function_, instruction) : 0, seen.words,
             seen.written});
        return step;
    }

    bool is_variable(PtxName name) const {
        return function_.spaces[name] != PtxSpace::Unknown ||
               module_.variables.contains(function_.names[name]);
    }

    // Other registers that nobody sets may have another value each time (%clock).
    std::optional<PtxSteps::Set> thread_number(PtxName name) const {
        using Prefix = std::pair<std::string_view, ThreadNumber>;
        constexpr std::array kNumbers{
            Prefix{"%tid.", ThreadNumber::Thread}, Prefix{"%ctaid.", ThreadNumber::Block},
            Prefix{"%ntid.", ThreadNumber::Threads}, Prefix{"%nctaid.", ThreadNumber::Blocks}};
        const std::string_view text = function_.names[name];
        if (!defined_[name].empty()) return std::nullopt;
        if (text == "%laneid") return PtxSteps::Set{kNoRegister, ThreadNumber::Lane, 0};
        for (const auto& [prefix, number] : kNumbers) {
            if (!text.starts_with(prefix) || text.size() != prefix.size() + 1) continue;
            const unsigned axis = static_cast<unsigned>(text.back() - 'x');
            if (axis < 3) return PtxSteps::Set{kNoRegister, number, axis};
        }
        return std::nullopt;
    }

    void set_thread_numbers() {
        for (const auto& [name, id] : ids_) {
            if (auto number = thread_number(name)) {
                number->reg = id;
                result_.set.push_back(*number);
            }
        }
    }

    const PtxModuleText& module_;
    const PtxBody& body_;
    const PtxFunction& function_;
    PtxSteps result_;
    std::vector<std::vector<std::size_t>> defined_;  // by PtxName: the instructions that give it a value
    std::unordered_map<PtxName, std::size_t> parameters_;
    std::unordered_map<PtxName, std::int64_t> parameter_addresses_;
    std::unordered_map<PtxName, RegisterId> ids_;
    std::unordered_map<std::size_t, std::vector<const SeenAccess*>> by_instruction_;
};

}  // namespace

std::optional<PtxSteps> PtxSteps::of(const PtxModuleText& module, const PtxBodies& kernel,
                                     std::span<const SeenAccess> accesses) {
    if (kernel.bodies.size() != 1 || kernel.bodies[0].function.body.size() > kMostInstructions)
        return std::nullopt;
    // The launch's grid is then of clusters.
    for (const auto& [name, body] : kernel.ids) {
        if (module.functions.at(name).header.find(".blocksareclusters") != std::string_view::npos)
            return std::nullopt;
    }
    auto flow = PtxFlow::of(kernel.bodies[0]);
    if (!flow) return std::nullopt;
    return Builder(module, kernel, std::move(*flow)).build(accesses);
}

}  // namespace lms::code

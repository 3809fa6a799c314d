#include "shim/code/ptx_taint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "shim/code/ptx_body.h"
#include "shim/code/ptx_writes.h"

namespace lms::code {

namespace {

// One kernel and the functions it calls, followed until nothing new is learnt.
class Follower {
  public:
    explicit Follower(const PtxModuleText& module) : module_(module) {}

    bool hides(std::string_view kernel) {
        const std::optional<std::size_t> entry = enter(kernel);
        if (!entry) return true;
        for (const PtxParameter& parameter : bodies_[*entry].function.parameters)
            bodies_[*entry].kinds[parameter.name] = parameter.is_pointer ? kPointer : kArgument;
        do {
            grown_ = false;
            // Calls add bodies on the way.
            for (std::size_t i = 0; i < bodies_.size() && !hidden_; ++i) pass(i);
        } while (grown_ && !hidden_);
        for (std::size_t i = 0; i < bodies_.size() && !hidden_; ++i) check(i);
        return hidden_;
    }
    const PtxBodies& kernel() const { return kernel_; }

  private:
    using Body = PtxBody;

    std::optional<std::size_t> enter(std::string_view name) {
        if (const auto known = kernel_.ids.find(name); known != kernel_.ids.end()) return known->second;
        const auto source = module_.functions.find(name);
        if (source == module_.functions.end() || source->second.body.data() == nullptr) return std::nullopt;
        std::optional<PtxFunction> function = parse_ptx_function(source->second);
        if (!function) return std::nullopt;
        Body body{std::move(*function), {}, {}};
        for (const PtxInstruction& instruction : body.function.body)
            body.opcodes.emplace_back(instruction.opcode);
        body.kinds.resize(body.function.names.size());
        for (PtxName id = 0; id < body.kinds.size(); ++id) body.kinds[id] = named(body.function, id);
        bodies_.push_back(std::move(body));
        kernel_.ids.emplace(name, bodies_.size() - 1);
        grown_ = true;
        return bodies_.size() - 1;
    }

    // What a name is by itself: registers nothing yet, numbers numbers, variables their addresses.
    Kinds named(const PtxFunction& function, PtxName id) const {
        const std::string_view name = function.names[id];
        if (name.front() >= '0' && name.front() <= '9') return kNumber;
        switch (function.spaces[id]) {
            case PtxSpace::Shared:
            case PtxSpace::Local:
                return kScratch;
            case PtxSpace::Param:
                return 0;
            default:
                break;
        }
        const auto variable = module_.variables.find(name);
        if (variable != module_.variables.end()) {
            const bool scratch = variable->second == PtxSpace::Shared || variable->second == PtxSpace::Local;
            return scratch ? kScratch : kPointer;
        }
        if (module_.functions.contains(name)) return kPointer;
        return special(name) ? kNumber : 0;
    }

    static bool special(std::string_view name) {
        constexpr std::array<std::string_view, 24> kSpecial{
            "%tid",          "%ntid",       "%ctaid",     "%nctaid",      "%laneid",        "%warpid",
            "%nwarpid",      "%smid",       "%nsmid",     "%gridid",      "%clusterid",     "%nclusterid",
            "%cluster_",     "%lanemask",   "%clock",     "%pm",          "%envreg",        "%globaltimer",
            "%dynamic_smem", "%total_smem", "%aggr_smem", "%is_explicit", "%current_graph", "WARP_SZ"};
        return std::any_of(kSpecial.begin(), kSpecial.end(),
                           [&](std::string_view prefix) { return name.starts_with(prefix); });
    }

    void learn(Kinds& kinds, Kinds more) {
        if ((kinds | more) == kinds) return;
        kinds |= more;
        grown_ = true;
    }

    Kinds of(const Body& body, const PtxOperand& operand) const {
        Kinds kinds = 0;
        for (const PtxName name : operand.names) kinds |= body.kinds[name];
        return kinds;
    }

    void pass(std::size_t index) {
        for (std::size_t i = 0; i < bodies_[index].function.body.size() && !hidden_; ++i) {
            const PtxInstruction& instruction = bodies_[index].function.body[i];
            const Opcode opcode = bodies_[index].opcodes[i];
            if (opcode.is(Operation::CallFunction)) {
                call(index, instruction);
            } else if (opcode.is(Operation::Store) || opcode.is(Operation::Reduce)) {
                store(bodies_[index], opcode, instruction);
            } else if (!instruction.operands.empty()) {
                compute(bodies_[index], opcode, instruction);
            }
        }
    }

    void store(Body& body, const Opcode& opcode, const PtxInstruction& instruction) {
        if (instruction.operands.size() < 2) return;
        const Kinds value = of(body, instruction.operands[1]);
        if (opcode.in_space("param")) {
            // An argument of the next call, or what this function returns.
            for (const PtxName name : instruction.operands[0].names) learn(body.kinds[name], value);
        } else if (to_scratch(body, opcode, instruction.operands[0])) {
            learn(scratch_, value);
        }
    }

    bool to_scratch(const Body& body, const Opcode& opcode, const PtxOperand& address) const {
        if (opcode.in_space("shared") || opcode.in_space("local")) return true;
        return !opcode.in_space("global") && (of(body, address) & kScratch);
    }

    void compute(Body& body, const Opcode& opcode, const PtxInstruction& instruction) {
        const Kinds result = value_of(body, opcode, instruction);
        note_address_taken(body, instruction);
        if (instruction.operands[0].is_address) {
            // Copies and reductions within memory ("cp.async", "cp.reduce"): shared memory may hold anything
            // afterwards. Others put there what they are given ("stmatrix").
            if (opcode.is(Operation::Copy)) learn(scratch_, kLoaded);
            if (to_scratch(body, opcode, instruction.operands[0])) learn(scratch_, result);
            makes_tensor_maps_ |= makes_tensor_map(opcode);
            return;
        }
        for (const PtxName name : instruction.operands[0].names) learn(body.kinds[name], result);
        // The arguments where they lie, read like local memory.
        if (opcode.is(Operation::ToSpace) && opcode.in_space("param")) learn(scratch_, kArgument);
        if (opcode.is(Operation::Atomic) && instruction.operands.size() > 2 &&
            to_scratch(body, opcode, instruction.operands[1])) {
            for (std::size_t i = 2; i < instruction.operands.size(); ++i)
                learn(scratch_, of(body, instruction.operands[i]));
        }
    }

    // Arguments may be read by other addresses than their names; those of a function where they lie in local
    // memory, too, and they may be written there.
    void note_address_taken(Body& body, const PtxInstruction& instruction) {
        for (const PtxOperand& operand : instruction.operands) {
            if (operand.is_address) continue;
            for (const PtxName name : operand.names) {
                if (body.function.spaces[name] != PtxSpace::Param) continue;
                learn(parameters_, body.kinds[name]);
                if (&body == bodies_.data()) continue;
                learn(scratch_, body.kinds[name]);
                learn(body.kinds[name], scratch_);
            }
        }
    }

    // What stands there, not behind it.
    Kinds value(const Body& body, const PtxOperand& operand) const {
        Kinds kinds = 0;
        for (const PtxName name : operand.names)
            kinds |= body.function.spaces[name] == PtxSpace::Param ? kParameter : body.kinds[name];
        return kinds;
    }

    // Of what an instruction with a destination gives.
    Kinds value_of(const Body& body, const Opcode& opcode, const PtxInstruction& instruction) const {
        const std::vector<PtxOperand>& operands = instruction.operands;
        const auto source = [&](std::size_t i) {
            return i < operands.size() ? value(body, operands[i]) : Kinds{0};
        };
        switch (opcode.operation()) {
            case Operation::Load:
            case Operation::Atomic:
                return operands.size() < 2 ? kLoaded : loaded(body, opcode, operands[1]);
            case Operation::ToSpace:
                if (opcode.in_space("param")) return kScratch;
                // Only a pointer is given an address space.
                return source(1) & kPointer ? source(1) & ~(kNumber | kSize) : source(1);
            case Operation::Bitwise:
                // What is kept as the difference of two pointers.
                if (opcode.has("xor") && ((source(1) | source(2)) & kPointer) != 0 &&
                    ((source(1) | source(2)) & (kLoaded | kComputed)) != 0)
                    return kLoaded;
                return pairwise(source(1), source(2), sum);
            case Operation::Add:
                return pairwise(source(1), source(2), sum);
            case Operation::Subtract:
                return pairwise(source(1), source(2), difference);
            case Operation::MultiplyAdd:
            case Operation::FusedAdd:
                return pairwise(computed(opcode, source(1) | source(2)), source(3), sum);
            case Operation::Multiply:
            case Operation::Scale:
                return computed(opcode, source(1) | source(2));
            case Operation::Number:
                return kNumber;
            case Operation::ShiftLeft:
                return shifted(opcode, source(1), body.function, operands);
            case Operation::Insert:
                return (source(1) & kWidened ? kLoaded : source(1)) | source(2);
            case Operation::Convert: {
                if (opcode.last().starts_with('f')) return kNumber;
                const Kinds kinds = source(1);
                if (!opcode.widens()) return kinds;
                return (kinds & kScratch) | (kinds & (kLoaded | kWidened) ? kWidened : kNumber);
            }
            case Operation::Select:
                return source(1) | source(2);
            default:
                break;
        }
        Kinds all = 0;
        for (std::size_t i = 1; i < operands.size(); ++i) all |= operands[i].is_address ? kLoaded : source(i);
        return all ? all : kNumber;
    }

    Kinds loaded(const Body& body, const Opcode& opcode, const PtxOperand& address) const {
        if (opcode.in_space("param")) {
            const Kinds where = value(body, address);
            const bool named =
                address.names.size() == 1 && body.function.spaces[address.names[0]] == PtxSpace::Param;
            const Kinds kinds = named ? of(body, address) : where & kParameter ? parameters_ : where;
            return opcode.is_wide() || kinds & (kLoaded | kScratch) ? kinds : kNumber;
        }
        // Written by the host alone, and what it writes there is followed.
        if (opcode.in_space("const")) return opcode.is_wide() ? kArgument : kNumber;
        if (opcode.in_space("shared") || opcode.in_space("local")) return scratch_;
        const Kinds from = of(body, address);
        if (!opcode.in_space("global") && (from & kScratch) && !(from & (kPointer | kLoaded)))
            return scratch_;
        return kLoaded;
    }

    static constexpr Kinds kFromMemory = kLoaded | kWidened | kComputed | kDistance;

    // What has fewer bits, or is of floating point, is no address.
    static Kinds computed(const Opcode& opcode, Kinds kinds) {
        const bool has_bits = opcode.has("wide") || (opcode.is_wide() && !opcode.last().starts_with('f'));
        return has_bits && (kinds & kFromMemory) != 0 ? kComputed : kNumber;
    }

    // A half shifted up by 32 bits becomes part of a pointer again, and so may what is shifted by an amount
    // that is not written there.
    static Kinds shifted(const Opcode& opcode, Kinds kinds, const PtxFunction& function,
                         const std::vector<PtxOperand>& operands) {
        constexpr int kLargestScale = 16;
        const std::optional<int> by = operands.size() > 2 ? written(function, operands[2]) : std::nullopt;
        if (by && *by <= kLargestScale) return computed(opcode, kinds);
        return kinds & kFromMemory ? kLoaded : kNumber;
    }

    // A decimal number; nothing for registers and what is written otherwise.
    static std::optional<int> written(const PtxFunction& function, const PtxOperand& operand) {
        if (operand.names.size() != 1) return std::nullopt;
        const std::string_view text = function.names[operand.names[0]];
        const char* const end = text.data() + text.size();
        int number = 0;
        const auto [stopped, error] = std::from_chars(text.data(), end, number);
        return error == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
    }

    void call(std::size_t index, const PtxInstruction& instruction) {
        const PtxCall call = call_of(module_, bodies_[index].function, instruction);
        if (is_harmless(module_, call.function)) {
            // A heap of the device's own is no memory of the program's.
            for (const PtxName result : call.returned) learn(bodies_[index].kinds[result], kPointer);
            return;
        }
        const std::optional<std::size_t> callee = call.function.empty() ? std::nullopt : enter(call.function);
        if (!callee) {
            hidden_ = true;
            return;
        }
        Body& from = bodies_[index];
        Body& to = bodies_[*callee];
        for (std::size_t i = 0; i < std::min(call.arguments.size(), to.function.parameters.size()); ++i)
            learn(to.kinds[to.function.parameters[i].name], from.kinds[call.arguments[i]]);
        for (std::size_t i = 0; i < std::min(call.returned.size(), to.function.returns.size()); ++i)
            learn(from.kinds[call.returned[i]], to.kinds[to.function.returns[i].name]);
    }

    // Whether an address may be one that the arguments do not show.
    static bool may_be_any(Kinds kinds) {
        return (kinds & (kLoaded | kComputed | kDistance)) != 0 ||
               (kinds & (kPointer | kScratch | kParameter)) == 0;
    }

    // Whether an address of global memory may be a loaded one.
    void check(std::size_t index) {
        const Body& body = bodies_[index];
        for (std::size_t i = 0; i < body.function.body.size() && !hidden_; ++i) {
            const Opcode& opcode = body.opcodes[i];
            // Of others of its fields it is given numbers.
            if (makes_tensor_map(opcode) && opcode.has("global_address"))
                hidden_ |= may_be_any(of(body, body.function.body[i].operands.back()));
            if (!reaches_global(opcode)) continue;
            for (const PtxOperand& operand : body.function.body[i].operands) {
                if (!operand.is_address) continue;
                const Kinds kinds = of(body, operand);
                hidden_ |= may_be_any(kinds);
                // A tensor map that lies elsewhere than among the arguments: others may have made it.
                hidden_ |= goes_by_tensor_map(opcode) && (kinds & kPointer) != 0 && !makes_tensor_maps_;
            }
        }
    }

    const PtxModuleText& module_;
    PtxBodies kernel_;
    std::vector<Body>& bodies_ = kernel_.bodies;
    Kinds scratch_ = kNumber;  // of all that is stored in local and shared memory
    Kinds parameters_ = 0;     // of the arguments whose addresses are taken
    bool makes_tensor_maps_ = false;
    bool grown_ = false;
    bool hidden_ = false;
};

}  // namespace

PtxCall call_of(const PtxModuleText& module, const PtxFunction& caller, const PtxInstruction& instruction) {
    const std::vector<PtxOperand>& operands = instruction.operands;
    const auto is_function = [&](const PtxOperand& operand) {
        return operand.names.size() == 1 && module.functions.contains(caller.names[operand.names[0]]);
    };
    PtxCall call;
    std::size_t at = 0;
    if (!operands.empty() && !is_function(operands[0])) call.returned = operands[at++].names;
    if (at >= operands.size() || !is_function(operands[at])) return call;
    call.function = caller.names[operands[at].names[0]];
    if (at + 1 < operands.size()) call.arguments = operands[at + 1].names;
    return call;
}

struct PtxModule::Parts {
    struct Answers {
        Answer addresses = Answer::Incomplete;
        KernelAccesses accesses{ParameterWords::all(), {}, {}};
        std::shared_ptr<const PtxBounds> bounds;
    };
    std::string text;
    std::optional<PtxModuleText> module;
    bool indexed = false;
    std::unordered_map<std::string, Answers> answers;

    Answers look(const PtxBodies& kernel) const {
        KernelAccesses accesses = code::accesses_of(*module, kernel);
        auto bounds = PtxBounds::of(*module, kernel, accesses.seen);
        return {Answer::Complete, std::move(accesses), std::move(bounds)};
    }

    // Null: there is no such kernel.
    const Answers* of(std::string_view kernel) {
        static const Answers kUnknown;
        if (!indexed) module = index_ptx(text);
        indexed = true;
        if (!module) return &kUnknown;
        const auto function = module->functions.find(kernel);
        if (function == module->functions.end() || !function->second.is_entry) return nullptr;
        const auto [it, is_new] = answers.try_emplace(std::string(kernel));
        Follower follower(*module);
        if (is_new && !follower.hides(kernel)) it->second = look(follower.kernel());
        return &it->second;
    }
};

PtxModule::PtxModule(std::string text) : parts_(std::make_unique<Parts>()) {
    text.resize(std::min(text.find('\0'), text.size()));
    parts_->text = std::move(text);
}

PtxModule::~PtxModule() = default;

PtxModule::Answer PtxModule::addresses_of(std::string_view kernel) {
    const Parts::Answers* const answers = parts_->of(kernel);
    return answers ? answers->addresses : Answer::Absent;
}

ParameterWords PtxModule::written_by(std::string_view kernel) {
    const Parts::Answers* const answers = parts_->of(kernel);
    return answers ? answers->accesses.written : ParameterWords();
}

std::span<const KernelAccess> PtxModule::accesses_of(std::string_view kernel) {
    const Parts::Answers* const answers = parts_->of(kernel);
    return answers ? std::span(answers->accesses.all) : std::span<const KernelAccess>();
}

std::shared_ptr<const PtxBounds> PtxModule::bounds_of(std::string_view kernel) {
    const Parts::Answers* const answers = parts_->of(kernel);
    return answers ? answers->bounds : nullptr;
}

}  // namespace lms::code

#include "shim/code/ptx_writes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shim/code/ptx_layouts.h"

namespace lms::code {

namespace {

// What had a part in a value.
struct Origins {
    ParameterWords words;
    bool own = false;  // memory that is none of the program's: variables, shared and local memory, the heap
    bool loaded = false;  // something in memory

    bool none() const { return words.none() && !own; }
    void add(const Origins& more) {
        words.add(more.words);
        own |= more.own;
        loaded |= more.loaded;
    }
    friend bool operator==(const Origins&, const Origins&) = default;
};

bool is_scratch(const Opcode& opcode) {
    return (opcode.in_space("shared") || opcode.in_space("local")) && !opcode.in_space("global");
}

bool is_global(const Opcode& opcode) {
    return opcode.in_space("global") && !opcode.in_space("shared") && !opcode.in_space("local");
}

bool only_reads(const Opcode& opcode) {
    return opcode.also(kOnlyReads) || (opcode.is(Operation::Matrix) && opcode.has("load")) ||
           (opcode.is(Operation::Copy) && opcode.has("prefetch"));
}

// "cp.async.ca.shared.global": the space of the destination comes first.
bool copies_to_shared(const Opcode& opcode, std::string_view text) {
    const std::size_t shared = text.find(".shared");
    return opcode.is(Operation::Copy) && !opcode.has("reduce") && shared != std::string_view::npos &&
           shared < text.find(".global");
}

// Bytes of each of the values that "ld.param.v2.u64" loads; nothing where the type is another.
std::optional<std::size_t> element_bytes(const Opcode& opcode) {
    const std::string_view type = opcode.last();
    if (type.empty() || std::string_view("busf").find(type.front()) == std::string_view::npos)
        return std::nullopt;
    for (const auto& [bits, bytes] : {std::pair{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}, {"128", 16}}) {
        if (type.substr(1) == bits) return bytes;
    }
    return std::nullopt;
}

class AccessFollower {
  public:
    AccessFollower(const PtxModuleText& module, const PtxBodies& kernel) : module_(module), kernel_(kernel) {
        for (std::size_t i = 0; i < kernel.bodies.size(); ++i) {
            const PtxFunction& function = kernel.bodies[i].function;
            origins_.emplace_back(function.names.size());
            for (PtxName name = 0; name < function.names.size(); ++name)
                origins_[i][name].own = is_own(function, name);
        }
    }

    KernelAccesses follow() {
        if (!lay_out()) return {ParameterWords::all(), {{ParameterWords::all(), {}, true}}, {}};
        linears_.emplace(module_, kernel_, places_);
        do {
            grown_ = false;
            // What was not known yet when it was looked at counts as anything.
            written_ = {};
            accesses_.clear();
            seen_.clear();
            for (std::size_t i = 0; i < kernel_.bodies.size(); ++i) {
                for (std::size_t at = 0; at < kernel_.bodies[i].opcodes.size(); ++at) pass(i, at);
            }
        } while (grown_);
        return {written_, std::move(accesses_), std::move(seen_)};
    }

  private:
    // The parameters' places in their block; by name, where each begins.
    bool lay_out() {
        const PtxFunction& function = kernel_.bodies[0].function;
        const auto layout = layout_of(function.parameters);
        if (!layout) return false;
        places_.resize(function.names.size());
        for (std::size_t i = 0; i < layout->size(); ++i) {
            const PtxName name = function.parameters[i].name;
            places_[name] = (*layout)[i];
            origins_[0][name].words.add((*layout)[i].offset, (*layout)[i].bytes);
        }
        return true;
    }

    bool is_own(const PtxFunction& function, PtxName name) const {
        switch (function.spaces[name]) {
            case PtxSpace::Unknown:
                return module_.variables.contains(function.names[name]) ||
                       module_.functions.contains(function.names[name]);
            case PtxSpace::Param:
                return false;
            default:
                return true;
        }
    }

    void learn(Origins& origins, const Origins& more) {
        const Origins before = origins;
        origins.add(more);
        grown_ |= !(origins == before);
    }

    Origins of(std::size_t index, const std::vector<PtxName>& names) const {
        Origins all;
        for (const PtxName name : names) all.add(origins_[index][name]);
        return all;
    }

    void pass(std::size_t index, std::size_t at) {
        const PtxInstruction& instruction = kernel_.bodies[index].function.body[at];
        const Opcode& opcode = kernel_.bodies[index].opcodes[at];
        if (opcode.is(Operation::CallFunction)) return call(index, instruction);
        if (instruction.operands.empty()) return;
        if (opcode.in_space("param") && opcode.is(Operation::Store)) {
            // An argument of the next call, or what this function returns.
            for (std::size_t i = 1; i < instruction.operands.size(); ++i)
                give(index, instruction.operands[0], of(index, instruction.operands[i].names));
        } else if (opcode.in_space("param") && opcode.is(Operation::Load)) {
            load_parameter(index, opcode, instruction);
        } else {
            compute(index, at, opcode);
        }
    }

    void give(std::size_t index, const PtxOperand& destination, const Origins& value) {
        for (const PtxName name : destination.names) learn(origins_[index][name], value);
    }

    void load_parameter(std::size_t index, const Opcode& opcode, const PtxInstruction& instruction) {
        if (instruction.operands.size() < 2) return;
        const PtxOperand& from = instruction.operands[1];
        const auto bytes = element_bytes(opcode);
        const bool placed = index == 0 && from.offset && *from.offset >= 0 && bytes &&
                            from.names.size() == 1 && places_[from.names[0]].has_value();
        const std::vector<PtxName>& names = instruction.operands[0].names;
        const bool apart = names.size() == opcode.elements();  // else one register has them all
        for (std::size_t i = 0; i < names.size(); ++i) {
            Origins value;
            if (placed) {
                const std::size_t first =
                    places_[from.names[0]]->offset + static_cast<std::size_t>(*from.offset);
                value.words.add(apart ? first + i * *bytes : first,
                                apart ? *bytes : opcode.elements() * *bytes);
            } else {
                value = of(index, from.names);
            }
            learn(origins_[index][names[i]], value);
        }
    }

    void compute(std::size_t index, std::size_t at, const Opcode& opcode) {
        const PtxInstruction& instruction = kernel_.bodies[index].function.body[at];
        const std::vector<PtxOperand>& operands = instruction.operands;
        const bool has_result = !operands[0].is_address;
        Origins values;
        std::size_t addresses = 0;
        for (std::size_t i = has_result ? 1 : 0; i < operands.size(); ++i) {
            if (operands[i].is_address) {
                ++addresses;
            } else {
                values.add(of(index, operands[i].names));
                note_address_taken(index, operands[i]);
            }
        }
        if (addresses == 0 &&
            (opcode.is(Operation::Store) || opcode.is(Operation::Reduce) || opcode.is(Operation::Atomic)))
            written_ = ParameterWords::all();
        if (addresses == 0) return give(index, operands[0], values);
        if (reaches_global(opcode)) note_accesses(index, at, opcode);
        if (!only_reads(opcode)) write(index, opcode, instruction, values, addresses);
        if (has_result) {
            values.add(loaded(index, opcode, operands));
            give(index, operands[0], values);
        }
    }

    // Parameters may be read where they lie, by other addresses than their names; those of functions may be
    // written there.
    void note_address_taken(std::size_t index, const PtxOperand& operand) {
        for (const PtxName name : operand.names) {
            if (kernel_.bodies[index].function.spaces[name] != PtxSpace::Param) continue;
            learn(scratch_, origins_[index][name]);
            if (index != 0) learn(origins_[index][name], scratch_);
        }
    }

    Origins loaded(std::size_t index, const Opcode& opcode, const std::vector<PtxOperand>& operands) const {
        if (opcode.in_space("const")) return {{}, true};
        Origins values;
        values.loaded = !is_scratch(opcode);
        if (!is_global(opcode)) values.add(scratch_);
        if (!is_scratch(opcode)) values.add(global_);
        if (only_reads(opcode)) return values;
        // What it is that such an instruction gives is not known.
        for (const PtxOperand& operand : operands) {
            if (operand.is_address) values.add(of(index, operand.names));
        }
        return values;
    }

    void note_accesses(std::size_t index, std::size_t at, const Opcode& opcode) {
        const PtxInstruction& instruction = kernel_.bodies[index].function.body[at];
        // Handles of textures and surfaces are no addresses, what a tensor map names is found by the map, and
        // a prefetch of nothing does nothing.
        if (opcode.also(kNoAccess) || goes_by_tensor_map(opcode)) return;
        const bool written = !only_reads(opcode) && !copies_to_shared(opcode, instruction.opcode);
        for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
            const PtxOperand& operand = instruction.operands[i];
            if (!operand.is_address) continue;
            const Origins address = of(index, operand.names);
            if (address.words.none() && address.own) continue;
            const ParameterWords words = address.none() ? ParameterWords::all() : address.words;
            note_access({words, linears_->of_address(index, operand), written, address.loaded});
            if (index == 0) seen_.push_back({at, i, words, written});
        }
    }

    void note_access(KernelAccess access) {
        constexpr std::int64_t kNear = 64 << 10;
        constexpr std::size_t kMost = 64;
        access.begins.constant -= access.begins.constant % kNear;
        // The parameters lead to another buffer sooner than a constant does.
        if (accesses_.size() >= kMost) access.begins.constant = 0;
        // Without terms a number is left, which tells nothing.
        if (access.begins.terms.empty() || accesses_.size() >= 2 * kMost) access.begins = {};
        if (std::ranges::find(accesses_, access) == accesses_.end()) accesses_.push_back(std::move(access));
    }

    void write(std::size_t index, const Opcode& opcode, const PtxInstruction& instruction,
               const Origins& values, std::size_t addresses) {
        if (makes_tensor_map(opcode)) grown_ |= !std::exchange(makes_tensor_maps_, true);
        if (!is_global(opcode)) learn(scratch_, values);
        if (!is_scratch(opcode)) learn(global_, values);
        if (addresses > 1 && !is_scratch(opcode)) {
            learn(scratch_, {{}, false, true});
            learn(scratch_, global_);
            learn(global_, scratch_);
        }
        if (is_scratch(opcode) || copies_to_shared(opcode, instruction.opcode)) return;
        for (const PtxOperand& operand : instruction.operands) {
            if (!operand.is_address) continue;
            const Origins address = of(index, operand.names);
            written_.add(address.none() ? ParameterWords::all() : address.words);
        }
        // A tensor map that was put together here names what was put into memory.
        if (goes_by_tensor_map(opcode) && makes_tensor_maps_) {
            written_.add(scratch_.words);
            written_.add(global_.words);
        }
    }

    void call(std::size_t index, const PtxInstruction& instruction) {
        const PtxCall call = call_of(module_, kernel_.bodies[index].function, instruction);
        const auto callee = kernel_.ids.find(call.function);
        if (is_harmless(module_, call.function) || callee == kernel_.ids.end()) {
            Origins result = of(index, call.arguments);
            result.own = true;
            for (const PtxName name : call.returned) learn(origins_[index][name], result);
            return;
        }
        const std::size_t to = callee->second;
        const PtxFunction& function = kernel_.bodies[to].function;
        for (std::size_t i = 0; i < std::min(call.arguments.size(), function.parameters.size()); ++i)
            learn(origins_[to][function.parameters[i].name], origins_[index][call.arguments[i]]);
        for (std::size_t i = 0; i < std::min(call.returned.size(), function.returns.size()); ++i)
            learn(origins_[index][call.returned[i]], origins_[to][function.returns[i].name]);
    }

    const PtxModuleText& module_;
    const PtxBodies& kernel_;
    std::vector<std::vector<Origins>> origins_;     // by body and PtxName
    std::vector<std::optional<Parameter>> places_;  // of the kernel's parameters, by PtxName
    Origins scratch_;                               // of all that is stored in local and shared memory
    Origins global_;                                // and elsewhere
    std::optional<PtxLinears> linears_;
    ParameterWords written_;
    std::vector<KernelAccess> accesses_;
    std::vector<SeenAccess> seen_;
    bool makes_tensor_maps_ = false;
    bool grown_ = false;
};

}  // namespace

KernelAccesses accesses_of(const PtxModuleText& module, const PtxBodies& kernel) {
    return AccessFollower(module, kernel).follow();
}

}  // namespace lms::code

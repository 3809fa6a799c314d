#include "shim/code/ptx_linear.h"

#include <algorithm>
#include <string_view>

namespace lms::code {

namespace {

// Addresses go round.
std::int64_t plus(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t times(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

// Whether it works on integers; what it gives is of its last type.
bool is_integer(const Opcode& opcode) {
    const std::string_view type = opcode.last();
    return !type.empty() && (type.front() == 's' || type.front() == 'u' || type.front() == 'b');
}

std::size_t bytes_of_parameter(const Opcode& opcode) {
    if (!is_integer(opcode)) return 0;
    const std::string_view bits = opcode.last().substr(1);
    return bits == "64" ? 8 : bits == "32" ? 4 : 0;
}

// The same made 64 bits wide.
std::optional<Linear> widened(std::optional<Linear> value, bool is_signed) {
    if (!value) return value;
    for (LinearTerm& term : value->terms) term.is_signed = is_signed;
    return value;
}

bool has_destination(const Opcode& opcode, const PtxInstruction& instruction) {
    return !instruction.operands.empty() && !instruction.operands[0].is_address &&
           !opcode.is(Operation::Jump) && !opcode.is(Operation::CallFunction);
}

}  // namespace

Linear added(const Linear& a, const Linear& b) {
    Linear result{plus(a.constant, b.constant), {}};
    auto at = b.terms.begin();
    for (const LinearTerm& term : a.terms) {
        while (at != b.terms.end() && at->offset < term.offset) result.terms.push_back(*at++);
        result.terms.push_back(term);
        const auto same = [&](const LinearTerm& other) {
            return other.offset == term.offset && other.bytes == term.bytes &&
                   other.is_signed == term.is_signed;
        };
        if (at == b.terms.end() || !same(*at)) continue;
        result.terms.back().factor = plus(term.factor, at++->factor);
        if (result.terms.back().factor == 0) result.terms.pop_back();
    }
    result.terms.insert(result.terms.end(), at, b.terms.end());
    return result;
}

Linear scaled(const Linear& a, std::int64_t factor) {
    Linear result{times(a.constant, factor), a.terms};
    for (LinearTerm& term : result.terms) term.factor = times(term.factor, factor);
    std::erase_if(result.terms, [](const LinearTerm& term) { return term.factor == 0; });
    return result;
}

Linear common(const Linear& a, const Linear& b) {
    Linear result{a.constant, {}};
    std::ranges::copy_if(a.terms, std::back_inserter(result.terms), [&](const LinearTerm& term) {
        return std::ranges::find(b.terms, term) != b.terms.end();
    });
    return result;
}

PtxLinears::PtxLinears(const PtxModuleText& module, const PtxBodies& kernel,
                       const std::vector<std::optional<Parameter>>& places)
    : module_(module), kernel_(kernel), places_(places) {
    for (std::size_t i = 0; i < kernel.bodies.size(); ++i) {
        values_.emplace_back(kernel.bodies[i].function.names.size(), Linear{});
        leave_open(i);
    }
    do {
        grown_ = false;
        for (std::size_t i = 0; i < kernel.bodies.size(); ++i) {
            const PtxBody& body = kernel.bodies[i];
            for (std::size_t at = 0; at < body.opcodes.size(); ++at)
                pass(i, body.opcodes[at], body.function.body[at]);
        }
    } while (grown_);
}

// What instructions give is not known yet; all else begins with nothing: numbers of threads, variables.
void PtxLinears::leave_open(std::size_t body) {
    const PtxBody& all = kernel_.bodies[body];
    for (PtxName name = 0; name < all.function.names.size(); ++name) {
        if (all.function.spaces[name] == PtxSpace::Param) values_[body][name].reset();
        if (const auto number = ptx_integer(all.function.names[name]))
            values_[body][name] = Linear{*number, {}};
    }
    for (const PtxParameter& parameter : all.function.parameters) values_[body][parameter.name].reset();
    for (std::size_t at = 0; at < all.opcodes.size(); ++at) {
        const PtxInstruction& instruction = all.function.body[at];
        if (!has_destination(all.opcodes[at], instruction)) continue;
        for (const PtxName name : instruction.operands[0].names) values_[body][name].reset();
    }
}

void PtxLinears::learn(std::size_t body, PtxName name, const Value& value) {
    if (!value) return;
    Value& known = values_[body][name];
    Linear now = known ? common(*known, *value) : *value;
    if (known == now) return;
    known = std::move(now);
    grown_ = true;
}

PtxLinears::Value PtxLinears::value(std::size_t body, const PtxOperand& operand) const {
    if (operand.is_address || operand.names.size() != 1) return Linear{};
    const PtxName name = operand.names[0];
    // The address of a parameter.
    if (kernel_.bodies[body].function.spaces[name] == PtxSpace::Param) return Linear{};
    const Value& known = values_[body][name];
    return known && operand.is_negative ? scaled(*known, -1) : known;
}

Linear PtxLinears::of_address(std::size_t body, const PtxOperand& operand) const {
    if (operand.names.size() != 1) return {};
    Linear address = values_[body][operand.names[0]].value_or(Linear{});
    if (operand.offset) address.constant = plus(address.constant, *operand.offset);
    return address;
}

void PtxLinears::pass(std::size_t body, const Opcode& opcode, const PtxInstruction& instruction) {
    if (opcode.is(Operation::CallFunction)) return call(body, instruction);
    if (opcode.in_space("param") && opcode.is(Operation::Store)) return store_parameter(body, instruction);
    if (opcode.in_space("param") && opcode.is(Operation::Load))
        return load_parameter(body, opcode, instruction);
    if (!has_destination(opcode, instruction)) return;
    const std::vector<PtxName>& names = instruction.operands[0].names;
    if (names.size() == 1 && opcode.is(Operation::Select) && instruction.operands.size() > 2) {
        learn(body, names[0], value(body, instruction.operands[1]));
        learn(body, names[0], value(body, instruction.operands[2]));
    } else if (names.size() == 1) {
        learn(body, names[0], computed(body, opcode, instruction));
    } else {
        for (const PtxName name : names) learn(body, name, Linear{});
    }
}

// An argument of the next call, or what the function returns.
void PtxLinears::store_parameter(std::size_t body, const PtxInstruction& instruction) {
    if (instruction.operands.size() < 2 || instruction.operands[0].names.size() != 1) return;
    const bool whole = instruction.operands[0].offset == 0;
    learn(body, instruction.operands[0].names[0],
          whole ? value(body, instruction.operands[1]) : Value(Linear{}));
}

void PtxLinears::load_parameter(std::size_t body, const Opcode& opcode, const PtxInstruction& instruction) {
    if (instruction.operands.size() < 2) return;
    const PtxOperand& from = instruction.operands[1];
    const std::vector<PtxName>& names = instruction.operands[0].names;
    const std::size_t bytes = bytes_of_parameter(opcode);
    const bool known = bytes != 0 && from.offset && *from.offset >= 0 && from.names.size() == 1 &&
                       names.size() == opcode.elements();
    const std::optional<Parameter>* const place = known && body == 0 ? &places_[from.names[0]] : nullptr;
    for (std::size_t i = 0; i < names.size(); ++i) {
        Value loaded = Linear{};
        if (place && *place) {
            const std::size_t at = (*place)->offset + static_cast<std::size_t>(*from.offset) + i * bytes;
            loaded = Linear{0, {{at, bytes, opcode.last().front() == 's', 1}}};
        } else if (known && from.offset == 0 && names.size() == 1) {
            loaded = values_[body][from.names[0]];
        }
        learn(body, names[i], loaded);
    }
}

void PtxLinears::call(std::size_t body, const PtxInstruction& instruction) {
    const PtxCall call = call_of(module_, kernel_.bodies[body].function, instruction);
    const auto callee = kernel_.ids.find(call.function);
    if (is_harmless(module_, call.function) || callee == kernel_.ids.end()) {
        for (const PtxName name : call.returned) learn(body, name, Linear{});
        return;
    }
    const std::size_t to = callee->second;
    const PtxFunction& function = kernel_.bodies[to].function;
    for (std::size_t i = 0; i < std::min(call.arguments.size(), function.parameters.size()); ++i)
        learn(to, function.parameters[i].name, values_[body][call.arguments[i]]);
    for (std::size_t i = 0; i < std::min(call.returned.size(), function.returns.size()); ++i)
        learn(body, call.returned[i], values_[to][function.returns[i].name]);
}

PtxLinears::Value PtxLinears::computed(std::size_t body, const Opcode& opcode,
                                       const PtxInstruction& instruction) const {
    const auto source = [&](std::size_t i) {
        return i < instruction.operands.size() ? value(body, instruction.operands[i]) : Value(Linear{});
    };
    if (!is_integer(opcode)) return Linear{};
    switch (opcode.operation()) {
        case Operation::Move:
            return source(1);
        case Operation::ToSpace:
            return opcode.in_space("param") ? Value(Linear{}) : source(1);
        case Operation::Convert:
            if (opcode.widens()) return widened(source(1), opcode.last().front() == 's');
            return opcode.is_wide() ? source(1) : Value(Linear{});
        case Operation::Add:
        case Operation::Subtract:
        case Operation::Multiply:
        case Operation::MultiplyAdd:
        case Operation::ShiftLeft:
            break;
        default:
            return Linear{};
    }
    if (opcode.has("hi")) return Linear{};
    Value a = source(1);
    Value b = source(2);
    if (!a || !b) return std::nullopt;
    if (opcode.is(Operation::Add)) return added(*a, *b);
    if (opcode.is(Operation::Subtract)) return added(*a, scaled(*b, -1));
    if (opcode.has("wide")) {
        a = widened(a, opcode.last().front() == 's');
        b = widened(b, opcode.last().front() == 's');
    }
    // Numbers of threads begin with 0, which is no factor: one side must be written there.
    const auto number = [&](std::size_t i) {
        return instruction.operands.size() > i && instruction.operands[i].names.size() == 1
                   ? ptx_integer(kernel_.bodies[body].function.names[instruction.operands[i].names[0]])
                   : std::nullopt;
    };
    Linear product;
    if (opcode.is(Operation::ShiftLeft)) {
        const auto by = number(2);
        if (by && *by >= 0 && *by < 63) product = scaled(*a, std::int64_t{1} << *by);
    } else if (number(2)) {
        product = scaled(*a, b->constant);
    } else if (number(1)) {
        product = scaled(*b, a->constant);
    }
    if (!opcode.is(Operation::MultiplyAdd)) return product;
    const Value c = source(3);
    return c ? Value(added(product, *c)) : c;
}

}  // namespace lms::code

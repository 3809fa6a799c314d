// Operands as C expressions: registers, literals, addresses and special registers.
#include <cstring>
#include <unordered_map>

#include "tools/simcuda/address.h"
#include "tools/simcuda/exec/abi.h"
#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {
namespace {

bool kept_as_float(const Register& reg) {
    return reg.type == Type::F32 || reg.type == Type::F64 || reg.as_float;
}

std::string real_literal(double value, std::uint64_t bits, bool single) {
    if (value - value != 0) return fmt::format("{}({:#x}ul)", single ? "sc_f32" : "sc_f64", bits);
    return single ? fmt::format("{:a}f", value) : fmt::format("({:a})", value);
}

}  // namespace

std::string other_side_text(const std::string& address) {
    return fmt::format("(({}) ^ {:#x}ul)", address, kSideBit);
}

const Register& FunctionEmitter::register_of(const Operand& operand) const {
    return function_.registers[static_cast<std::size_t>(operand.reg)];
}

std::string FunctionEmitter::bits_of(const Operand& operand) const {
    const Register& reg = register_of(operand);
    if (!kept_as_float(reg)) return reg.c_name;
    if (computed_[static_cast<std::size_t>(operand.reg)] && bytes_of(reg.type) == 4)
        return fmt::format("sc_u32(sc_canonical_f32({}))", reg.c_name);
    return fmt::format("{}({})", bytes_of(reg.type) == 4 ? "sc_u32" : "sc_u64", reg.c_name);
}

std::string FunctionEmitter::observed(const Operand& operand, Type type) {
    std::string value = read(operand, type);
    const bool computed = type == Type::F32 && operand.kind == Operand::Kind::Register &&
                          kept_as_float(register_of(operand)) &&
                          computed_[static_cast<std::size_t>(operand.reg)];
    return computed ? fmt::format("sc_canonical_f32({})", value) : value;
}

std::string FunctionEmitter::read(const Operand& operand, Type type) {
    switch (operand.kind) {
        case Operand::Kind::Register:
            return read_register(operand, type);
        case Operand::Kind::Integer:
        case Operand::Kind::Real:
            return literal(operand, type);
        case Operand::Kind::Name:
            return fmt::format("({})({})", c_type(type), read_name(operand));
        default:
            refuse(*current_);
    }
}

std::string FunctionEmitter::read_register(const Operand& operand, Type type) {
    const Register& reg = register_of(operand);
    if (type == Type::Pred || reg.type == Type::Pred) {
        if (type != reg.type) refuse(*current_);
        return operand.negated ? "!" + reg.c_name : reg.c_name;
    }
    if (operand.negated) refuse(*current_);
    const unsigned bytes = bytes_of(reg.type);
    if (type == Type::F32 || type == Type::F64) {
        if (bytes != bytes_of(type)) refuse(*current_);
        if (kept_as_float(reg)) return reg.c_name;
        return fmt::format("{}({})", type == Type::F32 ? "sc_f32" : "sc_f64", reg.c_name);
    }
    return fmt::format("({}){}", c_type(type), bits_of(operand));
}

std::string FunctionEmitter::literal(const Operand& operand, Type type) {
    if (type == Type::Pred) {
        if (operand.kind != Operand::Kind::Integer) refuse(*current_);
        return (operand.integer != 0) != operand.negated ? "1" : "0";
    }
    if (type != Type::F32 && type != Type::F64) {
        if (operand.kind == Operand::Kind::Real && operand.real_bytes != bytes_of(type)) refuse(*current_);
        return fmt::format("({}){:#x}ul", c_type(type), operand.integer);
    }
    double value;
    if (operand.kind == Operand::Kind::Integer) {
        value = static_cast<double>(static_cast<std::int64_t>(operand.integer));
    } else if (operand.real_bytes == 4) {
        float single;
        const auto bits = static_cast<std::uint32_t>(operand.integer);
        std::memcpy(&single, &bits, sizeof single);
        if (type == Type::F32) return real_literal(static_cast<double>(single), bits, true);
        value = static_cast<double>(single);
    } else {
        std::memcpy(&value, &operand.integer, sizeof value);
    }
    if (type == Type::F32) {
        const float single = static_cast<float>(value);
        std::uint32_t bits;
        std::memcpy(&bits, &single, sizeof bits);
        return real_literal(static_cast<double>(single), bits, true);
    }
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return real_literal(value, bits, false);
}

std::string FunctionEmitter::variable_address(const Declaration& variable) {
    if (variable.opaque) refuse(*current_);
    switch (variable.space) {
        case Space::Shared:
            out_.shared.insert(&variable);
            return "(u64)" + variable.c_name;
        case Space::Local:
            return "(u64)" + variable.c_name;
        case Space::Param:
            if (!function_.entry)
                // A parameter is passed as its address; an array for a call is one.
                return "(u64)" + variable.c_name;
            for (const Declaration* parameter : function_.parameters)
                if (parameter == &variable)
                    return fmt::format("((u64)t->block->parameters + {})", variable.offset);
            return "(u64)" + variable.c_name;
        default:
            if (variable.external) throw Unsupported(fmt::format("extern variable {}", variable.name));
            return fmt::format("t->block->variables[{}]", variable.offset);
    }
}

// Special registers, variables' addresses and functions: what stands for itself in an expression.
std::string FunctionEmitter::read_name(const Operand& operand) {
    if (operand.declaration) {
        const std::string address = variable_address(*operand.declaration);
        return operand.offset ? fmt::format("{} + {}l", address, operand.offset) : address;
    }
    if (operand.name.starts_with('%')) return read_special(operand.name);
    std::uint64_t kernels = 0;
    for (const auto& function : module_.functions) {
        kernels += function->entry && function->defined;
        if (function->name != operand.name) continue;
        if (!function->defined) refuse(*current_);
        // A kernel is only ever launched: its number among the module's is name enough.
        if (function->entry) return fmt::format("{}ul", kernels);
        out_.callees.insert(function.get());
        out_.takes_function_address = true;
        return "(u64)" + c_name(*function);
    }
    throw Unsupported(std::string(operand.name));
}

std::string FunctionEmitter::read_special(std::string_view name) {
    static const std::unordered_map<std::string_view, std::string_view> registers = {
        {"%tid.x", "t->tid[0]"},
        {"%tid.y", "t->tid[1]"},
        {"%tid.z", "t->tid[2]"},
        {"%ntid.x", "t->block->ntid[0]"},
        {"%ntid.y", "t->block->ntid[1]"},
        {"%ntid.z", "t->block->ntid[2]"},
        {"%ctaid.x", "t->block->ctaid[0]"},
        {"%ctaid.y", "t->block->ctaid[1]"},
        {"%ctaid.z", "t->block->ctaid[2]"},
        {"%nctaid.x", "t->block->nctaid[0]"},
        {"%nctaid.y", "t->block->nctaid[1]"},
        {"%nctaid.z", "t->block->nctaid[2]"},
        {"%laneid", "t->lane"},
        {"%warpid", "t->warp"},
        {"%nwarpid", "(t->block->ntid[0] * t->block->ntid[1] * t->block->ntid[2] + 31) / 32"},
        {"%smid", "t->block->smid"},
        {"%nsmid", "t->block->nsmid"},
        {"%gridid", "t->block->grid_id"},
        {"%clusterid.x", "t->block->ctaid[0] / t->block->cluster_nctaid[0]"},
        {"%clusterid.y", "t->block->ctaid[1] / t->block->cluster_nctaid[1]"},
        {"%clusterid.z", "t->block->ctaid[2] / t->block->cluster_nctaid[2]"},
        {"%nclusterid.x", "t->block->nctaid[0] / t->block->cluster_nctaid[0]"},
        {"%nclusterid.y", "t->block->nctaid[1] / t->block->cluster_nctaid[1]"},
        {"%nclusterid.z", "t->block->nctaid[2] / t->block->cluster_nctaid[2]"},
        {"%cluster_ctaid.x", "t->block->cluster_ctaid[0]"},
        {"%cluster_ctaid.y", "t->block->cluster_ctaid[1]"},
        {"%cluster_ctaid.z", "t->block->cluster_ctaid[2]"},
        {"%cluster_nctaid.x", "t->block->cluster_nctaid[0]"},
        {"%cluster_nctaid.y", "t->block->cluster_nctaid[1]"},
        {"%cluster_nctaid.z", "t->block->cluster_nctaid[2]"},
        {"%cluster_ctarank", "t->block->cluster_rank"},
        {"%cluster_nctarank", "t->block->cluster_size"},
        {"%is_explicit_cluster", "t->block->explicit_cluster != 0"},
        {"%lanemask_eq", "1u << t->lane"},
        {"%lanemask_lt", "(1u << t->lane) - 1"},
        {"%lanemask_le", "(2u << t->lane) - 1"},
        {"%lanemask_gt", "~((2u << t->lane) - 1)"},
        {"%lanemask_ge", "~((1u << t->lane) - 1)"},
        {"%clock", "(u32)__builtin_ia32_rdtsc()"},
        {"%clock_hi", "__builtin_ia32_rdtsc() >> 32"},
        {"%clock64", "__builtin_ia32_rdtsc()"},
        {"%globaltimer", "t->block->runtime->clock_ns()"},
        {"%globaltimer_lo", "(u32)t->block->runtime->clock_ns()"},
        {"%globaltimer_hi", "t->block->runtime->clock_ns() >> 32"},
        {"%total_smem_size", "t->block->static_shared_bytes + t->block->dynamic_shared_bytes"},
        {"%dynamic_smem_size", "t->block->dynamic_shared_bytes"},
        // Where cooperative groups finds the words it synchronises a grid with.
        {"%envreg1", "t->block->workspace >> 32"},
        {"%envreg2", "(u32)t->block->workspace"},
    };
    const auto found = registers.find(name);
    if (found == registers.end()) throw Unsupported(std::string(name));
    return std::string(found->second);
}

void FunctionEmitter::write(const Operand& operand, Type type, const std::string& value) {
    if (operand.kind == Operand::Kind::Sink) {
        line("    (void)({});", value);
        return;
    }
    if (operand.kind != Operand::Kind::Register) refuse(*current_);
    const Register& reg = register_of(operand);
    const bool real = type == Type::F32 || type == Type::F64;
    if (type == Type::Pred || reg.type == Type::Pred) {
        if (type != reg.type) refuse(*current_);
        line("    {} = {};", reg.c_name, value);
    } else if (real && kept_as_float(reg)) {
        if (bytes_of(type) != bytes_of(reg.type)) refuse(*current_);
        line("    {} = {};", reg.c_name, value);
    } else if (real) {
        // A computed value enters an integer register here, a loaded or moved one keeps its bits.
        const bool computed =
            type == Type::F32 && current_->opcode != "ld" && computed_[static_cast<std::size_t>(operand.reg)];
        line("    {} = {}({}({}));", reg.c_name, type == Type::F32 ? "sc_u32" : "sc_u64",
             computed ? "sc_canonical_f32" : "", value);
    } else if (kept_as_float(reg)) {
        line("    {} = {}({});", reg.c_name, bytes_of(reg.type) == 4 ? "sc_f32" : "sc_f64", value);
    } else {
        // By way of the instruction's type, so that a signed value fills a wider register with its sign.
        line("    {} = ({})({});", reg.c_name, c_type(type), value);
    }
}

// A byte within 2 GiB of all that the space holds.
std::string FunctionEmitter::window(Space space) {
    const auto first_in = [this, space](const auto& declarations) -> std::string {
        for (const Declaration& declaration : declarations)
            if (declaration.space == space && !declaration.external) return variable_address(declaration);
        return {};
    };
    std::string first;
    if (space == Space::Const) first = first_in(module_.variables);
    // Of a variable's own address the compiler sees that what is counted from it stays in the variable.
    if (space == Space::Local) first = first_in(function_.declarations);
    if (!first.empty()) return first;
    return space == Space::Param && function_.entry ? "(u64)t->block->parameters" : "t->stack_limit";
}

std::string FunctionEmitter::within(Space space, const std::string& address) {
    if (space == Space::Cluster) return fmt::format("sc_cluster(t, {})", address);
    if (space == Space::Shared) return fmt::format("shared + (s32)({})", address);
    return fmt::format("sc_near({}, {})", window(space), address);
}

std::string FunctionEmitter::host_address(const Operand& operand, Space& space) {
    if (operand.kind != Operand::Kind::Address && operand.kind != Operand::Kind::Name) refuse(*current_);
    std::string base;
    if (operand.reg >= 0) {
        base = "(u64)" + bits_of(operand);
    } else if (operand.declaration) {
        base = variable_address(*operand.declaration);
        if (space == Space::Generic) space = operand.declaration->space;
    } else if (operand.name.empty()) {
        base = fmt::format("{:#x}ul", operand.integer);
    } else {
        throw Unsupported(std::string(operand.name));
    }
    // Shared, local, constant and parameter addresses have 32 bits, and the sum of a register and an offset
    // wraps. Small offsets are added to the result: then accesses by one register share the rest. A pointer
    // of 64 bits to constants may come from the host, and lead anywhere.
    const bool whole = operand.reg >= 0 && bytes_of(register_of(operand).type) == 8;
    const bool wraps = space == Space::Shared || space == Space::Cluster ||
                       (operand.reg >= 0 && (space == Space::Local || space == Space::Param ||
                                             (space == Space::Const && !whole)));
    const bool small = operand.offset > -exec::kWindowSlack && operand.offset < exec::kWindowSlack;
    if (operand.offset && !small) base += fmt::format(" + {}l", operand.offset);
    if (wraps) base = within(space, base);
    if (space == Space::Generic || space == Space::Global || space == Space::Const)
        base = other_side_text(base);
    if (operand.offset && small) base += fmt::format(" + {}l", operand.offset);
    return base;
}

}  // namespace simcuda::ptx
